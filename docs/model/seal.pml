/* The life of one extent: appends, the seal, its readers. README.md says what is left out and how to run it.
 *
 * This file holds what everybody shares, the stores and their mishaps. sealer.pml is a controller's seal, writer.pml
 * the input host of an AP queue, chain.pml that of a CP queue with its publisher and the next extent.
 *
 * Scope (-D)   RECORDS the writer may send · SEALERS 1 or 2 · FAULTS restarts and disk faults of stores together
 *              KINDS of fault: 1 restart + 2 lying disk + 4 wiped disk · INSTANT: an append is synced in one step
 *              LOST: the CAS to SEALED of the first sealer may have no answer: it is done at any time later, or never
 *              STOPS: a sealer that has not decided when the row is sealed stops, instead of asking on for nothing
 *              OPENED: all replicas were opened before the run · UNSORTED: no symmetry reduction, for reading a trail
 *              CHAIN: a CP queue, with MESSAGES of one publisher that changes its session at most MOVES times
 * Rule (-D)    BREAK=one of the following: the protocol without that rule. The assertions must catch each of them.
 */
#define NONE                0
#define L_IS_MIN            1  /* the shortest counting length decides */
#define FENCE_LOST          2  /* a restart forgets the fence; its guard, the session that ends with the run, is off too */
#define UNGATED             3  /* readers see what is appended */
#define SUSPECT_COUNTS      4  /* a suspect answer counts like an ok one */
#define AGAIN_EARLY         5  /* the writer appends its rest again before it knows L */
#define LENGTH_FIRST        6  /* the length is read, then the fence set */
#define SECOND_OPENER       7  /* a store lets another writer append too */
#define SESSION_RESUMED     8  /* an append session goes on after a restart of its store */
#define SEALED_UNGUARDED    9  /* SEALED is written without comparing */
#define COPY_BEYOND_END    10  /* a told replica takes a late copy above its L */
#define ACK_RACES_FENCE    11  /* a sync under way when the fence answered is acknowledged after it */
#define ABSENT_IS_OK       12  /* a store that knows nothing of the extent answers ok, length 0 */
#define SUSPECT_SUPPORTS   13  /* any other answer lets a weak one count */
#define WEAK_ALONE         14  /* a weak answer counts by itself */
#define ACK_AFTER_ASKING   15  /* the writer takes AppendAcks after it has sent its floor */
#define ONE_HOLDER         16  /* the writer acknowledges through a seal with one holder */
#define SHORT_TELLS_END    17  /* a told replica that is too short tells its readers the end */
#define HEAD_EARLY         18  /* CP: the head moves once a fence is set, before L is fixed */
#define LATER_FIRST        19  /* CP: later records do not wait for the outcome of earlier ones */
#define UNKNOWN_AGAIN      20  /* CP: what was reported unknown, or of a session that is gone, is appended again */
#define PAST_UNKNOWN       21  /* CP: a session goes on behind a record reported unknown, which a new session sends again */
#define ABSENCE_IS_LOSS    22  /* a sealer takes a store that it does not reach for one whose disk is gone for good */
#define LATE_UNGUARDED     23  /* a CAS that is done late does not compare */

#ifndef BREAK
#define BREAK NONE
#endif
#ifndef RECORDS
#define RECORDS 2
#endif
#ifndef SEALERS
#define SEALERS 1
#endif
#ifndef FAULTS
#define FAULTS 0
#endif
#ifndef KINDS
#define KINDS 7
#endif

#define N     3
#define NOEND 7
#define ENOUGH (BREAK == ONE_HOLDER -> 1 : 2)    /* min(2, N) */

/* What a sealer holds of a replica: in turn the grade of its answer, then its part in the copy. */
#define UNHEARD 0
#define OK      1
#define WEAK    2
#define SUSPECT 3
#define PART    4   /* counts, its tail is to be copied */
#define FULL    5   /* counts, complete to L */

typedef Replica {
  bit header;         /* OpenAppend is durable */
  bit stale;          /* the header is of an earlier run of the store */
  bit link;           /* the writer's append stream lives, or may still begin */
  bit fenced;
  bit foreign;        /* another disk answers under this name, or the copy is quarantined */
  bit ruined;         /* ghost: this disk lost what it had synced */
  bit holds;          /* the seal row lists it */
  unsigned got   : 2; /* appended */
  unsigned dur   : 2; /* of these, on the disk */
  unsigned said  : 2; /* highest AppendAck it sent */
  unsigned knows : 2; /* committed seq it heard of */
  unsigned end   : 3; /* L it was told, or NOEND */
  unsigned odd   : 3; /* bit s-1: at seq s stands a record that the writer never sent */
#ifdef LOST
  bit late;           /* the CAS that is under way lists it */
#endif
  byte mark[2];       /* of each sealer */
  byte size[2]
};
Replica R[N];

/* The seal row. */
mtype = { OPEN, SEALING, SEALED };
mtype row = OPEN;
unsigned floor : 2;
unsigned L     : 2;
unsigned sum   : 3;   /* stands for the checksum at L */

#ifdef LOST
/* A CAS that is under way, and that nobody waits for: what it writes, and the floor in the row that it compares. */
bit pending;
unsigned lateL : 2;
unsigned lateFloor : 2;
#endif

/* The writer. The link to replica r is FIFO: what is on its way there is (R[r].got, sent]. */
mtype = { RUN, ASKED, SETTLED };
mtype writer = RUN;
unsigned sent      : 2;
unsigned committed : 2; /* acknowledged because all replicas have it */
unsigned asked     : 2; /* the floor in its request */
unsigned bySeal    : 2; /* acknowledged because the seal said so, up to here */
unsigned again     : 3; /* bit s-1: appended again in another extent */
unsigned unknown   : 3; /* bit s-1: reported as unknown */

/* Ghosts. */
unsigned seen    : 2;   /* the furthest that any reader has read */
unsigned seenOdd : 3;
unsigned faults  : 2;
unsigned ruins   : 2;

#define MIN(a, b)  ((a) < (b) -> (a) : (b))
#define MAX(a, b)  ((a) > (b) -> (a) : (b))
#define UPTO(n)    ((1 << (n)) - 1)
#define BIT(s)     (1 << ((s) - 1))
#define ALL_SAID   MIN(R[0].said, MIN(R[1].said, R[2].said))
#define HOLDERS    (R[0].holds + R[1].holds + R[2].holds)
#define ANY_FENCED (R[0].fenced || R[1].fenced || R[2].fenced)
#define SOUND(r, s) (!R[r].ruined && !R[r].foreign && R[r].dur >= (s) && (R[r].odd & UPTO(s)) == 0)

#define EACH(step) step(0) step(1) step(2)

/* Replicas are interchangeable: sorting them after each step leaves one state of up to six. */
#ifdef UNSORTED
#define order() skip
#else
c_code {
  static int bytewise(const void *a, const void *b) { return memcmp(a, b, sizeof(struct Replica)); }
};
inline order() { c_code { qsort(now.R, 3, sizeof(struct Replica), bytewise); } }
#endif

/* I1: with all destroyed disks but one less than there are copies, somebody still has what was acknowledged. */
#define KEPT(s) (SOUND(0, s) || SOUND(1, s) || SOUND(2, s))
inline nothingLost() {
  assert(ruins > 2 || KEPT(committed));
  assert(ruins > 1 || KEPT(bySeal))
}

/* Readers are always there and take all they may have. */
#define READABLE(r) (R[r].end != NOEND -> MIN(R[r].end, R[r].dur) : (BREAK == UNGATED -> R[r].got : MIN(R[r].knows, R[r].dur)))
inline read(r) {
  d_step {
    if
    :: R[r].foreign
    :: else ->
         assert(((R[r].odd ^ seenOdd) & UPTO(MIN(READABLE(r), seen))) == 0);   /* I5, I3: all replicas say the same */
         if
         :: READABLE(r) > seen -> seen = READABLE(r); seenOdd = R[r].odd & UPTO(seen)
         :: else
         fi;
         assert(row != SEALED || seen <= L);                                   /* I3: nothing read lies beyond the end */
         assert(BREAK != SHORT_TELLS_END || R[r].end == NOEND || R[r].dur >= R[r].end) /* I1: no reader stops early */
    fi
  }
}

inline cut(r, n) { R[r].got = MIN(R[r].got, n); R[r].dur = MIN(R[r].dur, R[r].got); R[r].odd = R[r].odd & UPTO(R[r].got) }

/* A fence. What was accepted before it is synced and acknowledged, or dropped for ever. */
inline fence(r) {
  if
  :: R[r].got == R[r].dur || BREAK == ACK_RACES_FENCE
  :: R[r].got > R[r].dur && BREAK != ACK_RACES_FENCE -> R[r].dur = R[r].got;
       if :: R[r].link -> R[r].said = MAX(R[r].said, R[r].dur) :: else fi
  :: R[r].got > R[r].dur && BREAK != ACK_RACES_FENCE -> cut(r, R[r].dur)
  fi;
  R[r].fenced = 1
}

#define TAKES(r) (R[r].header && R[r].link && !R[r].fenced)

#define OPENS(r)  :: atomic { !R[r].header && R[r].link && !R[r].fenced && !R[r].foreign -> R[r].header = 1; order() }

#ifdef INSTANT
#define APPENDS(r) :: atomic { TAKES(r) && R[r].got < sent -> R[r].got = R[r].got + 1; \
    R[r].dur = R[r].got; R[r].said = MAX(R[r].said, R[r].dur); read(r); order() }
#else
#define APPENDS(r) :: atomic { TAKES(r) && R[r].got < sent -> R[r].got = R[r].got + 1; read(r); order() }
#endif

/* One sync for all that waits, then one answer. */
#define SYNCS(r)  :: atomic { R[r].dur < R[r].got && (!R[r].fenced || BREAK == ACK_RACES_FENCE) -> R[r].dur = R[r].got; \
    if :: R[r].link -> R[r].said = MAX(R[r].said, R[r].dur) :: else fi; order() }

/* The committed seq arrives, with an append or by itself. */
#define LEARNS(r) :: atomic { R[r].header && R[r].link && R[r].knows < committed -> R[r].knows = R[r].knows + 1; read(r); order() }

/* Sealed(L) arrives, from whoever compares the row with the store. */
#define TOLD(r)   :: atomic { row == SEALED && R[r].end == NOEND && !R[r].foreign -> \
    assert(R[r].knows <= L); \
    fence(r); \
    if \
    :: R[r].dur >= L && ((R[r].odd ^ sum) & UPTO(L)) != 0 -> R[r].foreign = 1 /* quarantined, not cut */ \
    :: else -> cut(r, L); R[r].end = L; read(r) \
    fi; \
    order() }

#define INTRUDES(r) :: atomic { BREAK == SECOND_OPENER && R[r].header && !R[r].fenced && R[r].got < RECORDS -> \
    R[r].got = R[r].got + 1; R[r].dur = R[r].got; R[r].odd = R[r].odd | BIT(R[r].got); order() }

proctype stores() {
  do
#ifndef OPENED
  EACH(OPENS)
#endif
  EACH(APPENDS)
#ifndef INSTANT
  EACH(SYNCS)
#endif
#ifndef CHAIN   /* its readers come after the seal */
  EACH(LEARNS)
  EACH(TOLD)
  EACH(INTRUDES)
#endif
  od
}

/* An append session does not survive its store's run. */
inline hangUp(r) {
  if
  :: R[r].header -> R[r].stale = 1; R[r].link = (BREAK == SESSION_RESUMED || BREAK == FENCE_LOST)
  :: else
  fi
}

/* At least one of the three disks keeps its data. */
#define MAY_RUIN(r) (ruins < 2 || R[r].ruined)

#define RESTARTS(r) :: atomic { faults < FAULTS && (KINDS & 1) && !R[r].foreign -> \
    faults++; cut(r, R[r].dur); hangUp(r); \
    if :: true :: R[r].knows > 0 -> R[r].knows = 0 fi; \
    if :: BREAK == FENCE_LOST -> R[r].fenced = 0 :: else fi; \
    order() }

/* A lying disk: a restart that finds less than was synced. Whatever was noted last may be gone too. */
#define LIES(r) :: atomic { faults < FAULTS && (KINDS & 2) && !R[r].foreign && MAY_RUIN(r) -> \
    faults++; ruins = ruins + !R[r].ruined; R[r].ruined = 1; hangUp(r); \
    if :: cut(r, R[r].dur) :: R[r].dur >= 1 -> cut(r, R[r].dur - 1) :: R[r].dur >= 2 -> cut(r, R[r].dur - 2) fi; \
    if :: true :: R[r].knows > 0 -> R[r].knows = 0 fi; \
    if :: true :: R[r].end != NOEND -> R[r].end = NOEND :: R[r].fenced -> R[r].fenced = 0; R[r].end = NOEND fi; \
    if :: true :: R[r].dur == 0 && R[r].header -> R[r].header = 0; R[r].stale = 0 fi; \
    nothingLost(); order() }

#define WIPED(r) :: atomic { faults < FAULTS && (KINDS & 4) && !R[r].foreign && MAY_RUIN(r) -> \
    faults++; ruins = ruins + !R[r].ruined; R[r].ruined = 1; R[r].foreign = 1; \
    cut(r, 0); R[r].header = 0; R[r].stale = 0; R[r].link = 0; R[r].fenced = 0; R[r].knows = 0; R[r].end = NOEND; \
    nothingLost(); order() }

proctype mishaps() {
  do
  EACH(RESTARTS)
  EACH(LIES)
  EACH(WIPED)
  :: faults >= FAULTS -> break
  od
}

#ifdef CHAIN
#include "chain.pml"
#else
#define orderKept() skip
#include "writer.pml"
#endif
#include "sealer.pml"

#ifdef OPENED
#define BEGINS(r) R[r].link = 1; R[r].end = NOEND; R[r].header = 1;
#else
#define BEGINS(r) R[r].link = 1; R[r].end = NOEND;
#endif

init {
  atomic {
    EACH(BEGINS)
    run stores();
    run mishaps();
#ifdef LOST
    run network();
#endif
    startWriter();
    run sealer(0);
    if :: SEALERS > 1 -> run sealer(1) :: else fi
  }
}
