/* A CP queue: an old extent, sealed by sealer.pml, and the next one of the chain, a log that never fails. One publisher
 * sends messages 1 … MESSAGES without waiting for answers. It may begin a new session at any time, at either host, and
 * then goes on at the first message that it has no success for – or gives that one up.
 *
 * Host 0 writes the old extent, host 1 owns the head once the head has moved. A session at host 0 goes on into the next
 * extent when the old one is settled.
 */
#ifndef MESSAGES
#define MESSAGES 3
#endif
#ifndef MOVES
#define MOVES 2
#endif


byte msg[RECORDS + 1];          /* message at a seq of the old extent, from 1 */
byte by[RECORDS + 1];           /* and the session that sent it */
byte next[RECORDS + MESSAGES*(MOVES + 1)];/* messages in the next extent */
byte filled;
bit head;                       /* 1: the head of the chain is the next extent */
unsigned current : 2;           /* newest session that the head has heard of */
unsigned session : 2 = 1;       /* the publisher's */
bit at;                         /* the host it talks to */
byte sending = 1;               /* message that it sends next */
unsigned answered : 5;          /* bit m: success was told */
unsigned givenUp  : 5;          /* bit m: the publisher never sends it again */
unsigned doubtful : 5;          /* bit m: unknown was told in this session */
byte resent;                    /* host 0 has settled the old extent up to here */

byte walk, met;                 /* of orderKept; 0 between its runs */

/* I5: in the sealed extent, then the next one, messages appear for the first time in the order they were published.
 * I1: all that were reported as a success appear. */
inline orderKept() {
  d_step {
    walk = 1; met = 0;
    do
    :: walk > L -> break
    :: else ->
         assert((met & (1 << msg[walk])) != 0 || (met >> msg[walk]) == 0);
         met = met | (1 << msg[walk]); walk++
    od;
    walk = 0;
    do
    :: walk >= filled -> break
    :: else ->
         assert((met & (1 << next[walk])) != 0 || (met >> next[walk]) == 0);
         met = met | (1 << next[walk]); walk++
    od;
    assert((answered & ~met) == 0);
    walk = 0; met = 0
  }
}
/* An append at the head. A newer session fences an older one there. */
inline enter(m, s) {
  next[filled] = m; filled++;
  current = MAX(current, s);
  if
  :: s == session -> answered = answered | (1 << m)
  :: else
  fi;
  if
  :: row == SEALED -> orderKept()
  :: else
  fi
}
#define MAY_ENTER(s) (head && ((s) >= current || BREAK == UNKNOWN_AGAIN))

#define CERTAIN (doubtful == 0 || BREAK == PAST_UNKNOWN)

proctype oldHost() {
  byte s;
  do
  :: atomic { writer == RUN && committed < ALL_SAID ->
       committed++;
       assert(row != SEALED || committed <= L);
       if :: by[committed] == session -> answered = answered | (1 << msg[committed]) :: else fi }
  :: atomic { writer == RUN -> writer = ASKED; asked = committed; resent = committed }
  /* What is left is settled one by one, in order. */
  :: atomic { writer == ASKED && row == SEALED && head && resent < sent ->
       s = resent + 1;
       if
       :: s <= L ->
            if
            :: by[s] == session && HOLDERS >= ENOUGH -> answered = answered | (1 << msg[s])
            :: by[s] == session && HOLDERS < ENOUGH -> doubtful = doubtful | (1 << msg[s])
            :: else
            fi
       :: s > L ->
            if
            :: (unknown & BIT(s)) == 0 || BREAK == UNKNOWN_AGAIN ->
                 if
                 :: MAY_ENTER(by[s]) -> enter(msg[s], by[s])
                 :: else
                 fi
            :: else
            fi
       fi;
       resent = s; s = 0 }
  :: atomic { writer == ASKED && row == SEALED && head && resent == sent -> writer = SETTLED }
  /* The publish deadline. */
  :: atomic { writer == ASKED && unknown == 0 && resent < sent ->
       s = resent + 1;
       do
       :: s > sent -> break
       :: else -> unknown = unknown | BIT(s);
            if :: by[s] == session -> doubtful = doubtful | (1 << msg[s]) :: else fi;
            s++
       od;
       s = 0 }
  od
}

#define RESOLVED(m) (((answered | givenUp) >> (m)) & 1)

proctype publisher() {
  byte m;
  do
  /* To the old extent. */
  :: atomic { at == 0 && writer == RUN && sent < RECORDS && sending <= MESSAGES ->
       sent++; msg[sent] = sending; by[sent] = session; sending++ }
  /* Through host 0 to the next one. */
  :: atomic { at == 0 && head && sending <= MESSAGES && CERTAIN && MAY_ENTER(session) &&
       (writer == SETTLED || BREAK == LATER_FIRST && writer != RUN) ->
       enter(sending, session); sending++ }
  /* Through host 1. */
  :: atomic { at == 1 && MAY_ENTER(session) && sending <= MESSAGES -> enter(sending, session); sending++ }
  /* A new session, from the first message without a success. */
  :: atomic { session <= MOVES ->
       session++;
       if :: at = 0 :: at = 1 fi;
       m = 1;
       do
       :: m < sending && RESOLVED(m) -> m++
       :: m < sending && !RESOLVED(m) -> givenUp = givenUp | (1 << m); m++
       :: m >= sending || !RESOLVED(m) -> break
       od;
       sending = m; doubtful = 0; m = 0 }
  od
}

proctype chain() {
  atomic { !head && (row == SEALED || BREAK == HEAD_EARLY && ANY_FENCED) -> head = 1 }
}

inline startWriter() { run oldHost(); run publisher(); run chain() }
