/* The C ABI of gradwire: one rank of a job, and the operations submitted to it.
 *
 * Decided here: the shape of every structure, the numbers of kinds, element types, reductions.
 * Implemented by the cdylib `gradwire_c` (python/src), used by the PyTorch binding (gradwire/csrc).
 *
 * Rules that hold for every function:
 * - a `gw_rank*` may be used from any number of threads; gw_close must be its last use;
 * - `error` receives a NUL-terminated line, cut to `error_len` bytes, when the call fails;
 * - text outputs return the length of the whole text, without NUL, however short the buffer is.
 */
#ifndef GRADWIRE_H
#define GRADWIRE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One rank of a job in this process: its sockets, its driver thread, its completion pool. */
typedef struct gw_rank gw_rank;

/* A submitted operation, to wait for it. */
typedef struct gw_ticket gw_ticket;

/* What a rank has counted since gw_open. Segments are payloads of one packet each. */
typedef struct {
  uint64_t sent_segments;        /* first transmissions of a segment */
  uint64_t lost_segments;        /* segments that stayed missing, within the tolerance */
  uint64_t repaired_segments;    /* segments sent again because they were lost */
  uint64_t received_segments;    /* segments that arrived for the first time */
  uint64_t ledger_lost_segments; /* lost segments as the loss-budget ledger counts them */
  uint64_t malformed_packets;    /* packets that are none, or whose tag or checksum is wrong */
  uint64_t faults_dropped;       /* packets dropped on purpose by the job's fault layer */
  uint64_t kernel_drops;         /* packets the kernel dropped because a socket was full */
} gw_counters;

/* From byte `offset_bytes` of the buffer on, elements belong to `layer` (0 = first in forward). */
typedef struct {
  uint64_t offset_bytes;
  uint32_t layer; /* 0..65534 */
  uint32_t reserved; /* zero */
} gw_layer;

enum {
  GW_ALL_REDUCE = 0,     /* in place in buffer */
  GW_BROADCAST = 1,      /* in place in buffer, from root */
  GW_ALL_GATHER = 2,     /* input -> buffer, which holds one input per rank */
  GW_REDUCE_SCATTER = 3, /* input, which holds one buffer per rank -> buffer */
  GW_BARRIER = 4,        /* no buffers */
  GW_SEND = 5,           /* buffer to root */
  GW_RECV = 6,           /* buffer from root */
  GW_REDUCE = 7,         /* in place in buffer, to root; the other ranks' buffers are only read */
  GW_GATHER = 8,         /* blocks of all ranks -> root's buffer; see below */
  GW_SCATTER = 9,        /* root's input, which holds one buffer per rank -> buffer */
  GW_ALL_TO_ALL = 10,    /* input, which holds one block per rank -> buffer, which does too */
  GW_RECV_ANY = 11       /* buffer from any other rank of the group; see gw_ticket_source */
};

/* Whose memory a gather and a scatter use. Gather: the input is the own block, on every rank; the
 * root's buffer holds one block per rank, the other ranks' buffer is not used. Without an input the
 * own block is in place in the root's buffer, and is the whole buffer of the other ranks. Scatter:
 * only the root's input is used; the buffer is the own block, on every rank.
 *
 * Which send answers which receive. Of the messages from one rank to another in a group, those with
 * one tag are received in the order of sending; any number of sends and receives may be on their
 * way. A GW_RECV claims the next message of its rank when it is submitted. A GW_RECV_ANY takes, of
 * the messages that no GW_RECV has claimed, the first that begins to arrive, or began before; it
 * goes on waiting when a rank is lost, unless all others are, or that one whose message it takes.
 * Both sides must give the same number of bytes. Messages of no bytes are sent and received like
 * others, and so need both sides.
 *
 * Tensors of no bytes. Collectives of no bytes are complete at once, but a barrier and an
 * all-to-all: that has a message for each pair of ranks even where a split is 0, since other splits
 * may not be, and so that ranks that disagree find out. */

enum {
  GW_U8 = 0,
  GW_I8 = 1,
  GW_I16 = 2,
  GW_I32 = 3,
  GW_I64 = 4,
  GW_F16 = 5,
  GW_BF16 = 6,
  GW_F32 = 7,
  GW_F64 = 8,
  GW_U16 = 9,
  GW_U32 = 10,
  GW_U64 = 11
};

enum {
  GW_HOLES_OF_JOB = 0,  /* the job's key `holes` says what stands in for what is missing */
  GW_HOLES_PREVIOUS = 1 /* what was there before, whatever the job says */
};

enum {
  GW_SUM = 0,
  GW_AVG = 1,
  GW_PRODUCT = 2,
  GW_MIN = 3,
  GW_MAX = 4,
  GW_BAND = 5,
  GW_BOR = 6,
  GW_BXOR = 7
};

/* One operation of a group. `ranks` and `layers` are copied by gw_submit; `buffer` and `input`
 * must stay valid, and untouched, until gw_done is called. */
typedef struct {
  uint32_t kind;   /* GW_ALL_REDUCE ... */
  uint32_t dtype;  /* GW_U8 ... */
  uint32_t reduce; /* GW_SUM ...; all-reduce, reduce-scatter and reduce only */
  uint32_t root;   /* position in `ranks` of the source (broadcast, scatter, recv) or destination
                      (reduce, gather, send) */
  void* buffer;
  size_t bytes;
  const void* input; /* all-gather, reduce-scatter, gather, scatter and all-to-all only */
  size_t input_bytes;
  uint32_t group;        /* 0..65535, the same number on every rank of the group */
  const uint32_t* ranks; /* members of the group in group order, as ranks of the job */
  size_t ranks_len;
  uint32_t sequence; /* of a collective in its group, the same on every rank; else not used */
  double tolerance;  /* share of a message that may be missing, below 1; negative: lossless */
  uint32_t step;     /* training step that the loss budget is kept for */
  uint32_t layer_count;   /* layers of the whole model; 0: unknown */
  const gw_layer* layers; /* ascending offsets, the first 0; may be null */
  size_t layers_len;
  uint64_t tensor_key;    /* the same for the same tensor in every step */
  double timeout_seconds; /* the operation fails when it has taken this long */
  uint32_t tag;           /* send, recv and recv-any only: 0..65535 */
  uint32_t holes;         /* GW_HOLES_OF_JOB ... */
  const uint64_t* input_splits;  /* all-to-all only: bytes of the input for each of the ranks, */
  const uint64_t* output_splits; /* and of the buffer from each; both null: all equal */
} gw_operation;

/* What a rank proves itself by. Certificates are three files in PEM, all given or all null. */
typedef struct {
  const char* token;       /* secret that the ranks share; may be empty with certificates */
  const char* certificate; /* this rank's, and those between it and the authority */
  const char* key;         /* of the certificate */
  const char* authority;   /* that every rank's certificate must be of */
} gw_credentials;

/* Who a rank is and where it works. Strings are copied. */
typedef struct {
  const char* job_path; /* a job.toml; null: the default job */
  uint32_t rank;
  uint32_t world;
  int32_t local_rank;    /* its number on its host, for its metrics port; negative: not known */
  const char* bind_host; /* a local address that peers can reach */
  const char* trace_folder; /* its flight recorder is written there on failure; null: nowhere */
  const char* log_level;    /* told on standard error: warn, info (or null), debug, trace */
  gw_credentials credentials;
} gw_opening;

/* Called exactly once for an accepted operation, on a thread that may block: one of the pool, or
 * one that is in gw_wait for this operation.
 * `code` is 0 when the operation has completed, and then `message` is null. */
typedef void (*gw_done)(void* user, int code, const char* message);

/* Opens the sockets of a rank; rank 0 also listens for the others. Null on failure. */
gw_rank* gw_open(const gw_opening* opening, char* error, size_t error_len);

/* Rank 0: writes the "host:port" that every rank passes to gw_join. */
size_t gw_rendezvous(gw_rank* rank, char* out, size_t len);

/* Every rank: blocks until all ranks of the job have joined. 0 on success. */
int gw_join(gw_rank* rank, const char* rendezvous, double timeout_seconds, char* error,
            size_t error_len);

/* Bytes of a gw_operation as the library was built, for callers that do not compile this header. */
size_t gw_operation_bytes(void);

/* Queues an operation. Null when it is refused; then `done` is never called. Else a ticket, to be
 * freed by gw_ticket_free at any time. */
gw_ticket* gw_submit(gw_rank* rank, const gw_operation* operation, gw_done done, void* user,
                     char* error, size_t error_len);

/* Does the rank's work on this thread until the operation has ended, and calls its gw_done here if
 * no other thread has. May return early: another thread is at it, or `seconds` have passed. */
void gw_wait(gw_rank* rank, const gw_ticket* ticket, double seconds);

/* Of a GW_RECV or GW_RECV_ANY that has ended well: the position in `ranks` of the rank that sent,
 * from before its gw_done is called. -1 before, and of every other operation. */
int gw_ticket_source(const gw_ticket* ticket);

/* Bytes of a receive's buffer that did not arrive, within its tolerance: they are as they were. */
typedef struct {
  uint64_t offset_bytes;
  uint64_t bytes;
} gw_hole;

/* Of a GW_RECV or GW_RECV_ANY that has ended well: writes up to `len` of its holes, in ascending
 * order, and returns how many there are, from before its gw_done is called. 0 before, and of every
 * other operation. Only floats can have holes; both sides give the same tolerance, and the sender
 * keeps what was lost for its next message of the same `tensor_key` where the rule says so. */
size_t gw_ticket_holes(const gw_ticket* ticket, gw_hole* out, size_t len);

void gw_ticket_free(gw_ticket* ticket);

void gw_counters_read(gw_rank* rank, gw_counters* out);

/* The most of any gradient message that the job lets be missing; 0 when all are lossless. Of a
 * message whose layers are known, "loss.layer_tolerances" say how much of that. */
double gw_job_tolerance(gw_rank* rank);

/* The resolved job as a JSON object: keys with dots ("transport.mtu"), values as text; chunk and
 * credit are those of now. */
size_t gw_job_json(gw_rank* rank, char* out, size_t len);

/* What the flight recorder holds now, as a JSON object: the form of `gradwire trace show`. Null
 * before the rank has joined. To be freed by gw_text_free. */
char* gw_trace_json(gw_rank* rank);

void gw_text_free(char* text);

/* Fails every pending operation here, and tells the other ranks why. */
void gw_abort(gw_rank* rank, const char* reason);

/* Takes away what error feedback keeps of a tensor for its next step, since that is part of a
 * training job's state: nothing of it is added to the next step, unless the caller does so.
 * `values` has the tensor's bytes, and receives lost values where they belong, else zeros. 1 where
 * something was kept, 0 where nothing was (`values` is left as it was), negative on failure, also
 * when the tensor had another type or length. */
int gw_residual_take(gw_rank* rank, uint64_t tensor_key, uint32_t dtype, void* values,
                     size_t bytes, char* error, size_t error_len);

/* How much of a tensor is one message, and how much of that is on its way at once. */
typedef struct {
  uint64_t chunk;  /* collectives.chunk in bytes */
  uint64_t credit; /* collectives.credit in bytes; 0 is unbounded */
} gw_schedule;

/* What the job's tuning (collectives.tuning) tries next, once steps with what it said last took
 * `step_seconds` each. 1: `out` is to be measured; 0: `out` is to be kept, there is no further
 * trial; negative on failure. The first call says what to measure first, whatever it is given.
 * Nothing changes by asking: one rank asks, and tells the others. */
int gw_tune(gw_rank* rank, double step_seconds, gw_schedule* out, char* error, size_t error_len);

/* Changes chunk and credit of what is submitted from now on; every rank must do so between the same
 * two operations. 0, negative on failure. */
int gw_reschedule(gw_rank* rank, const gw_schedule* schedule, char* error, size_t error_len);

/* Lets what is on its way finish, joins every thread, frees the rank. */
void gw_close(gw_rank* rank);

#ifdef __cplusplus
}
#endif

#endif
