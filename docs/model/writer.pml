/* The input host of an AP extent: sends, acknowledges, asks for the seal, settles what is left.
 * A writer that stays in RUN while others seal is the zombie; one that never takes another step died. */

/* Each record has one fate: what is in the sealed extent is not appended again, what was reported unknown never is. */
inline oneFate() {
  assert((again & UPTO(L)) == 0);                  /* I4 */
  assert((again & unknown) == 0)
}

inline settle(s) {
  s = committed + 1;
  do
  :: s > sent -> break
  :: s <= sent && s <= L ->
       if
       :: HOLDERS >= ENOUGH -> bySeal = s
       :: else -> unknown = unknown | BIT(s)
       fi; s++
  :: s <= sent && s > L ->
       if
       :: (unknown & BIT(s)) == 0 -> again = again | BIT(s)
       :: else
       fi; s++
  od;
  s = 0
}

#define STANDS(r) assert(!R[r].holds || R[r].ruined || bySeal <= committed || SOUND(r, bySeal));

proctype inputHost() {
  byte s;
  do
  :: atomic { writer == RUN && sent < RECORDS -> sent++ }
  :: atomic { (writer == RUN || BREAK == ACK_AFTER_ASKING && writer == ASKED) && committed < ALL_SAID ->
       committed++;
       assert(row != SEALED || committed <= L);    /* I1: also of a zombie */
       nothingLost() }
  :: atomic { writer == RUN -> writer = ASKED; asked = committed;
       if
       :: BREAK == AGAIN_EARLY -> again = UPTO(sent) & ~UPTO(committed)
       :: else
       fi }
  :: atomic { writer == ASKED && unknown == 0 && sent > committed ->  /* the publish deadline */
       unknown = UPTO(sent) & ~UPTO(committed) & ~again; writer = SETTLED }
  :: atomic { writer == ASKED && row == SEALED ->
       assert(committed <= L);
       settle(s);
       EACH(STANDS)                                /* I1 */
       nothingLost();
       oneFate();
       writer = SETTLED }
  od
}

inline startWriter() { run inputHost() }
