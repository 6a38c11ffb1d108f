/* One controller that seals. It may stop for ever between any two steps, and reach any replica or not. */

#define ANY_OK  (R[0].mark[id] == OK || R[1].mark[id] == OK || R[2].mark[id] == OK)
#define HEARD   ((R[0].mark[id] != UNHEARD) + (R[1].mark[id] != UNHEARD) + (R[2].mark[id] != UNHEARD))

/* The decision table: which answers count. */
#define WEAK_COUNTS(r) (BREAK == WEAK_ALONE || ANY_OK || HEARD == N || (base > 0 && R[r].size[id] >= base) \
  || (BREAK == SUSPECT_SUPPORTS && HEARD > 1))
#define COUNTS(r) ((R[r].fenced || BREAK != LENGTH_FIRST) \
  && (R[r].mark[id] == OK || (R[r].mark[id] == WEAK && WEAK_COUNTS(r))))

#define GRADE(r) (R[r].foreign || R[r].knows > R[r].dur -> (BREAK == SUSPECT_COUNTS -> OK : SUSPECT) \
  : (!R[r].header -> (BREAK == ABSENT_IS_OK && R[r].dur == 0 -> OK : WEAK) : (R[r].stale -> WEAK : OK)))

#ifdef STOPS
#define ASKING (row != SEALED)
#else
#define ASKING true
#endif

#define ASKS(r) :: atomic { ASKING && !decided && R[r].mark[id] == UNHEARD -> \
    if :: BREAK == LENGTH_FIRST :: else -> fence(r) fi; \
    R[r].mark[id] = GRADE(r); \
    R[r].size[id] = (R[r].mark[id] == SUSPECT -> 0 : R[r].dur); \
    need = MAX(need, R[r].knows); \
    order() }

/* An operator says that the store is gone for good: without an answer it counts like one that came back with another disk. What an operator says is true
 * here; a sealer that concludes it from silence is the mutant. */
#define GIVEN_UP(r) :: atomic { ASKING && !decided && R[r].mark[id] == UNHEARD && (R[r].foreign || BREAK == ABSENCE_IS_LOSS) -> \
    R[r].mark[id] = SUSPECT; order() }

/* The fence arrives, its answer is lost. */
#define FENCES(r) :: atomic { ASKING && !R[r].fenced && !R[r].foreign -> fence(r); order() }

#define WEIGHS(r) if :: COUNTS(r) -> counting = counting | (1 << r); \
    goal = (BREAK == L_IS_MIN -> MIN(goal, R[r].size[id]) : MAX(goal, R[r].size[id])) :: else fi;

#define PLACES(r) R[r].mark[id] = ((counting & (1 << r)) == 0 -> UNHEARD : (R[r].size[id] >= goal -> FULL : PART)); R[r].size[id] = 0;

inline decide() {
  goal = (BREAK == L_IS_MIN -> 3 : 0);
  EACH(WEIGHS)
  if
  :: counting == 0 || goal < MAX(need, base) -> forget()          /* stays sealing */
  :: else -> EACH(PLACES) need = 0; decided = 1
  fi;
  counting = 0
}

#define DROPS(r) R[r].mark[id] = UNHEARD; R[r].size[id] = 0;
inline forget() { EACH(DROPS) need = 0; goal = 0; decided = 0 }

/* One record of a tail, from replica f to replica r. */
#define COPIES(r, f) :: atomic { decided && R[r].mark[id] == PART && R[f].mark[id] == FULL && R[r].fenced && !R[r].foreign \
    && !R[f].foreign && R[r].got == R[r].dur && R[r].got < goal && R[f].dur > R[r].got \
    && (R[r].end == NOEND || R[r].got < R[r].end || BREAK == COPY_BEYOND_END) \
    && ((R[r].odd ^ R[f].odd) & UPTO(R[r].got)) == 0 -> \
    R[r].got = R[r].got + 1; R[r].dur = R[r].got; \
    R[r].odd = R[r].odd | (R[f].odd & BIT(R[r].got)); \
    assert(R[r].end == NOEND || R[r].dur <= R[r].end);              /* I6 */ \
    if :: R[r].end != NOEND -> read(r) :: else fi; \
    order() }

/* Another sealer's copy, or this one's, has reached the end. */
#define COMPLETES(r) :: atomic { decided && R[r].mark[id] == PART && !R[r].foreign && R[r].dur >= goal && R[r].got == R[r].dur \
    -> R[r].mark[id] = FULL; order() }

#define LISTS(r) R[r].holds = R[r].mark[id] == FULL; \
    if :: R[r].holds && !R[r].ruined -> sum = R[r].odd & UPTO(L) :: else fi;
#define HOLDS(r) assert(!R[r].holds || R[r].ruined || (R[r].dur >= L && ((R[r].odd ^ sum) & UPTO(L)) == 0));

/* CAS SEALING → SEALED(L, holders). */
inline record() {
  assert(row != SEALED || L == goal);              /* I6 */
  row = SEALED; L = goal;
  EACH(LISTS)
  recorded()
}

inline recorded() {
  EACH(HOLDS)                                      /* I5 */
  assert(committed <= L);                          /* I1 */
  assert(seen <= L);                               /* I3 */
  assert(L <= sent || BREAK == SECOND_OPENER);     /* I3 */
  assert((again & UPTO(L)) == 0);                  /* I4 */
  nothingLost();
  orderKept();                                     /* I5 */
  order()
}

#ifdef LOST
#define SENDS(r) R[r].late = (R[r].mark[id] == FULL);
inline send() { pending = 1; lateL = goal; lateFloor = floor; EACH(SENDS) order() }

#define LISTS_LATE(r) R[r].holds = R[r].late; \
    if :: R[r].holds && !R[r].ruined -> sum = R[r].odd & UPTO(L) :: else fi;
#define CLEARS(r) R[r].late = 0;
inline arrived() { pending = 0; lateL = 0; lateFloor = 0; EACH(CLEARS) }

/* A change of the floor is a new version of the row: a CAS from before does nothing any more. */
proctype network() {
  do
  :: atomic { pending && (row == SEALING && floor == lateFloor || BREAK == LATE_UNGUARDED) ->
       assert(row != SEALED || L == lateL);        /* I6 */
       row = SEALED; L = lateL;
       EACH(LISTS_LATE)
       arrived()
       recorded() }
  :: atomic { pending && BREAK != LATE_UNGUARDED && (row == SEALED || floor != lateFloor) -> /* it does nothing any more */
       arrived() order() }
  od
}
#endif

proctype sealer(byte id) {
  unsigned base : 2;      /* the floor in the row, when it was read */
  unsigned need : 2;      /* the highest committed seq reported */
  unsigned goal : 2;      /* L, decided here */
  unsigned counting : 3;
  bit decided;

  atomic { row != SEALED -> row = SEALING }
begin:
  if
  :: row == SEALED -> goto end
  :: row != SEALED
  fi;
  do
  /* The writer's request may come before the fences, between them or never. */
  :: atomic { row == SEALING && !decided && writer != RUN && asked > base -> floor = MAX(floor, asked); base = floor }
  EACH(ASKS)
  EACH(GIVEN_UP)
  EACH(FENCES)
  :: atomic { ASKING && !decided && HEARD > 0 -> decide() }
  :: atomic { !ASKING && !decided -> goto end }
  :: atomic { decided || HEARD > 0 -> forget(); base = 0; order(); goto begin } /* the try ends */
  COPIES(0, 1) COPIES(0, 2) COPIES(1, 0) COPIES(1, 2) COPIES(2, 0) COPIES(2, 1)
  EACH(COMPLETES)
  :: atomic { decided && (row == SEALED && BREAK != SEALED_UNGUARDED || goal < floor) -> goto end } /* the CAS fails */
#ifdef LOST
  /* No answer: it reads the row, tries again, or begins anew, until it is seen or another one is. */
  :: atomic { decided && id == 0 && row == SEALING && goal >= floor && !pending -> send() }
#endif
  :: atomic { decided && (row == SEALING && goal >= floor || BREAK == SEALED_UNGUARDED) -> record(); goto end }
  od;
end:
  atomic { forget(); base = 0; order() }
}
