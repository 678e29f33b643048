/* The C ABI of gradwire: one rank of a job, and the operations submitted to it.
 *
 * This header defines the layout of every structure, and the numbers of kinds, element types and
 * reductions. The cdylib `gradwire_c` (python/src) implements it; the PyTorch binding
 * (gradwire/csrc) uses it.
 *
 * Rules for every function:
 * - Any number of threads may use a `gw_rank*` at the same time; gw_close must be its last use.
 * - A fork of the process that opened a rank cannot use it: every call fails and names the fork;
 *   gw_close leaves the rank to its parent.
 * - When a call fails, `error` receives a NUL-terminated line, cut to `error_len` bytes.
 * - Text outputs return the length of the whole text, without NUL, however short the buffer is.
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

/* A submitted operation; a caller can wait for it and read its results. */
typedef struct gw_ticket gw_ticket;

/* Counts of a rank since gw_open. A segment is the payload of one packet. */
typedef struct {
  uint64_t sent_segments;        /* first transmissions of a segment */
  uint64_t lost_segments;        /* segments that stayed missing, within the tolerance */
  uint64_t repaired_segments;    /* segments sent again because they were lost */
  uint64_t received_segments;    /* segments that arrived for the first time */
  uint64_t ledger_lost_segments; /* lost segments as the loss-budget ledger counts them */
  uint64_t malformed_packets;    /* datagrams that are no packet, or with a wrong tag or checksum */
  uint64_t faults_dropped;       /* packets dropped by the faults that the job injects */
  uint64_t kernel_drops;         /* packets the kernel dropped because a socket was full */
  uint64_t sent_bytes;           /* of all packets, headers included, but not those of IP and UDP */
  uint64_t received_bytes;       /* likewise, with packets that came twice */
} gw_counters;

/* From byte `offset_bytes` of the buffer on, elements belong to `layer`; 0 is the first layer in
 * the forward pass. */
typedef struct {
  uint64_t offset_bytes;
  uint32_t layer; /* 0..65534 */
  uint32_t reserved; /* must be zero */
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

/* Memory of gather and scatter:
 * - Gather with an input: the input is the rank's own block. The root's buffer holds one block per
 *   rank; the buffers of other ranks are not used.
 * - Gather without an input: the root's own block is already in place in its buffer. On other
 *   ranks the whole buffer is the own block.
 * - Scatter: only the root's input is used. The buffer is the own block, on every rank.
 *
 * Matching of sends and receives:
 * - Messages from one rank to another, in one group and with one tag, are received in the order of
 *   sending. Any number of sends and receives may be pending.
 * - A GW_RECV claims the next message of its rank when it is submitted.
 * - A GW_RECV_ANY takes the first message that begins or has begun to arrive, among those that no
 *   GW_RECV has claimed. If a rank is lost, it continues to wait, unless all other ranks are lost
 *   or the lost rank is the one whose message it takes.
 * - Both sides must give the same number of bytes. A message of zero bytes needs both sides, too.
 *
 * Tensors of zero bytes: a collective is complete at once, except a barrier and an all-to-all. An
 * all-to-all sends a message for each pair of ranks even where a split is 0: other splits may not
 * be 0, and ranks that disagree must notice. */

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
  GW_HOLES_OF_JOB = 0,  /* the job's key `holes` decides how missing elements are filled */
  GW_HOLES_PREVIOUS = 1 /* missing elements keep their old values, whatever the job says */
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

/* How gradients are encoded between hosts: all-reduce and reduce-scatter, sum and average, of
 * floats. Values that an encoding does not carry are a residual of the tensor, as lost ones are. */
enum {
  GW_CODEC_NONE = 0,
  GW_CODEC_OF_JOB = 1, /* the keys `collectives.codec`, where codecs are defined */
  GW_CODEC_ONEBIT = 2,
  GW_CODEC_TBQ = 3,
  GW_CODEC_TERNGRAD = 4,
  GW_CODEC_TOPK = 5,
  GW_CODEC_BLOCKFLOAT = 6
};

/* One operation of a group. gw_submit copies `ranks` and `layers`. `buffer` and `input` must stay
 * valid, and the caller must not touch them, until gw_done is called. They must not overlap. */
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
  uint32_t sequence; /* number of a collective in its group, the same on every rank; else unused */
  double tolerance;  /* share of a message that may be missing, below 1; negative: lossless */
  uint32_t step;     /* training step whose loss budget the operation draws on */
  uint32_t layer_count;   /* layers of the whole model; 0: unknown */
  const gw_layer* layers; /* ascending offsets, the first 0; may be null */
  size_t layers_len;
  uint64_t tensor_key;    /* identifies the tensor; the same in every step. 0: nothing does, and
                             holes are rescaled */
  double timeout_seconds; /* the operation fails after this time */
  uint32_t tag;           /* send, recv and recv-any only: 0..65535 */
  uint32_t holes;         /* GW_HOLES_OF_JOB ... */
  const uint64_t* input_splits;  /* all-to-all only: bytes of the input for each of the ranks, */
  const uint64_t* output_splits; /* and of the buffer from each; both null: all equal */
  uint32_t codec;      /* GW_CODEC_NONE ... */
  double codec_share;  /* GW_CODEC_TOPK only: share of the values that are sent; 0: the job's */
} gw_operation;

/* The credentials of a rank. Certificates are three PEM files, all given or all null. */
typedef struct {
  const char* token;       /* secret that the ranks share; may be empty with certificates */
  const char* certificate; /* this rank's certificate, and intermediates up to the authority */
  const char* key;         /* private key of the certificate */
  const char* authority;   /* certificates of the authority that signed all ranks' certificates */
} gw_credentials;

/* The parameters of gw_open. Strings are copied. */
typedef struct {
  const char* job_path; /* a job.toml; null: the default job */
  uint32_t rank;
  uint32_t world;
  int32_t local_rank;    /* its number on its host, for its metrics port; negative: unknown */
  const char* bind_host; /* a local address that peers can reach */
  const char* trace_folder; /* its flight recorder is written here on failure, and when SIGTERM ends
                               the process; null: not written */
  const char* log_level;    /* level on standard error: warn, info (or null), debug, trace */
  gw_credentials credentials;
  uint32_t port; /* where rank 0 awaits the others (UDP); 0: any free port */
} gw_opening;

/* Called exactly once for an accepted operation. It may block: it runs on a thread of the pool, or
 * on one that is in gw_wait for this operation. `code` is 0 if the operation succeeded, and then
 * `message` is null. */
typedef void (*gw_done)(void* user, int code, const char* message);

/* Takes a line of the log. `level` is one of Python's logging: 40 is an error, 20 an information,
 * and 5 is below all of them. */
typedef void (*gw_line)(int level, const char* text);

/* Gives the lines of this process to `line`, one at a time, on a thread of their own, from now on.
 * Null gives them to standard error again; when the call returns, the function before is no longer
 * used. */
void gw_log_to(gw_line line);

/* Opens the sockets of a rank; rank 0 also listens for the others. Returns null on failure. */
gw_rank* gw_open(const gw_opening* opening, char* error, size_t error_len);

/* Rank 0: writes the "host:port" that every rank passes to gw_join. */
size_t gw_rendezvous(gw_rank* rank, char* out, size_t len);

/* Every rank: blocks until all ranks of the job have joined. Returns 0 on success. */
int gw_join(gw_rank* rank, const char* rendezvous, double timeout_seconds, char* error,
            size_t error_len);

/* Size of a gw_operation in the built library, for callers that do not compile this header. */
size_t gw_operation_bytes(void);

/* Queues an operation. Returns a ticket, which gw_ticket_free may free at any time; or null if the
 * operation is refused, and then `done` is never called. */
gw_ticket* gw_submit(gw_rank* rank, const gw_operation* operation, gw_done done, void* user,
                     char* error, size_t error_len);

/* Drives the rank on this thread until the operation has ended, and calls its gw_done here if no
 * other thread has called it. Returns early if another thread drives, or after `seconds`. Returns 0
 * on success, which does not mean that the operation has ended. */
int gw_wait(gw_rank* rank, const gw_ticket* ticket, double seconds, char* error, size_t error_len);

/* Returns the position in `ranks` of the rank that sent, for a GW_RECV or GW_RECV_ANY that has
 * succeeded; known before its gw_done is called. Returns -1 until then, and for every other
 * operation. */
int gw_ticket_source(const gw_ticket* ticket);

/* Bytes of a receive's buffer that did not arrive, within its tolerance: they keep their values. */
typedef struct {
  uint64_t offset_bytes;
  uint64_t bytes;
} gw_hole;

/* Writes up to `len` holes of a GW_RECV or GW_RECV_ANY that has succeeded, in ascending order, and
 * returns how many there are; known before its gw_done is called. Returns 0 until then, and for
 * every other operation. Only floats can have holes. Both sides give the same tolerance. If the
 * rule for holes is error feedback, the sender adds the lost values to its next message of the
 * same `tensor_key`. */
size_t gw_ticket_holes(const gw_ticket* ticket, gw_hole* out, size_t len);

/* Frees a ticket; null is ignored. The operation goes on. */
void gw_ticket_free(gw_ticket* ticket);

/* Writes the rank's counters to `out`; zeros before the rank has joined. */
void gw_counters_read(gw_rank* rank, gw_counters* out);

/* The largest share of a gradient message that the job allows to be missing; 0 if all messages are
 * lossless. For a message with known layers, "loss.layer_tolerances" may allow less. */
double gw_job_tolerance(gw_rank* rank);

/* The resolved job as a JSON object: dotted keys ("transport.mtu"), values as text. Chunk and
 * credit are the current ones. */
size_t gw_job_json(gw_rank* rank, char* out, size_t len);

/* Returns the current content of the flight recorder as a JSON object, in the form that `gradwire
 * trace show` reads; null before the rank has joined. Free it with gw_text_free. */
char* gw_trace_json(gw_rank* rank);

/* Frees a text that this library returned; null is ignored. */
void gw_text_free(char* text);

/* Returns 1 if operations can begin; 0 before the rank has joined, and once the job has ended on
 * any rank, by an abort, a mismatch or a missed deadline. */
int gw_takes_operations(gw_rank* rank);

/* Fails every pending operation of this rank, and tells the other ranks the reason. */
void gw_abort(gw_rank* rank, const char* reason);

/* Ends a group on this rank, without waiting: its pending operations here fail, messages that it
 * has sent and no rank has received are cancelled, and messages that come for it later are refused,
 * which fails their sends. Ranks that are behind still get the results of operations that have
 * ended here. The group's number cannot be used again. A group that has ended may end again.
 * Returns 0 on success. */
int gw_end_group(gw_rank* rank, uint32_t group, char* error, size_t error_len);

/* Takes the residual that error feedback keeps of a tensor for its next step, since a checkpoint
 * must contain it. The rank then adds none of it to the next step; the caller may add it itself.
 * `values` has the tensor's length in bytes. It receives each lost value at its place, and zeros
 * elsewhere. Returns 1 if there was a residual; 0 if there was none, and then `values` is
 * unchanged; a negative number on failure, which includes a tensor of another type or length: then
 * the rank keeps the residual. */
int gw_residual_take(gw_rank* rank, uint64_t tensor_key, uint32_t dtype, void* values,
                     size_t bytes, char* error, size_t error_len);

/* Multiplies the residual of a tensor by `factor`: the scale of the loss, as mixed precision sets
 * it, over the one before. Call it between two steps, on every rank. Does nothing where there is no
 * residual. Returns 0 on success; a factor must be finite and above 0. */
int gw_residual_scale(gw_rank* rank, uint64_t tensor_key, double factor, char* error,
                      size_t error_len);

/* The size of a tensor's messages, and how many bytes of them may be pending at once. */
typedef struct {
  uint64_t chunk;  /* collectives.chunk in bytes */
  uint64_t credit; /* collectives.credit in bytes; 0 is unbounded */
} gw_schedule;

/* Asks the job's tuning (collectives.tuning) for the next schedule, after steps with the last one
 * took `step_seconds` each. Returns 1 if `out` should be measured next; 0 if `out` should be kept,
 * since no trial is left; a negative number on failure. The first call ignores `step_seconds` and
 * returns the first schedule to measure. The call itself changes no schedule: one rank asks, tells
 * the others, and all call gw_reschedule. */
int gw_tune(gw_rank* rank, double step_seconds, gw_schedule* out, char* error, size_t error_len);

/* Changes chunk and credit for operations submitted from now on. Every rank must do so between the
 * same two operations. Returns 0, or a negative number on failure. */
int gw_reschedule(gw_rank* rank, const gw_schedule* schedule, char* error, size_t error_len);

/* Waits up to `seconds` for pending operations, as long again for ranks that have not got what
 * ended operations owe them, and as long again, 5 s at most, for ranks that are not done, which the
 * log names. Then joins every thread, and frees the rank. Null is ignored. */
void gw_close(gw_rank* rank, double seconds);

/* The code by which parameter servers keep each other's state (servers.redundancy). A symbol is a
 * run of bytes; all symbols of a snapshot have the same length. With n servers, each of which
 * stores s symbols, and rebuilders that send r symbols each:
 * - server * s + i is symbol i that a server stores; its own data come first;
 * - n * s + (rebuilder * n + rebuilt) * r + i is symbol i that a rebuilder sends to a server
 *   that is rebuilt. */
typedef struct gw_code gw_code;

typedef struct {
  uint32_t servers;        /* n */
  uint32_t needed;         /* k: any that many servers hold everything */
  uint32_t rebuilders;        /* d: that many servers rebuild a lost one */
  uint32_t data_symbols;   /* of each server's own data */
  uint32_t stored_symbols; /* s */
  uint32_t sent_symbols;   /* r */
  uint32_t snapshot_every; /* servers.snapshot_every */
} gw_code_shape;

typedef struct {
  const uint32_t* targets;
  size_t targets_len;
  const uint32_t* sources;
  size_t sources_len;
} gw_symbols;

/* Each output is the sum of all inputs, each times its factor: one row of factors per output. No
 * output may overlap an input or another output. */
typedef struct {
  const uint8_t* factors;
  const uint8_t* const* inputs;
  size_t inputs_len;
  uint8_t* const* outputs;
  size_t outputs_len;
  size_t bytes; /* of each input and output */
} gw_combination;

/* Reads a job and makes its code. `job_path` may be null for the default job. Returns 1 with `code`
 * and `shape`; 0 for a job without redundancy; a negative number on failure. */
int gw_code_open(const char* job_path, gw_code** code, gw_code_shape* shape, char* error,
                 size_t error_len);

/* Writes the factors by which targets are sums of sources: one row per target, with one factor per
 * source, 0 for sources that are not needed. Returns 0, or a negative number on failure, also where
 * the sources do not determine a target. */
int gw_code_express(const gw_code* code, const gw_symbols* symbols, uint8_t* factors, char* error,
                    size_t error_len);

/* Computes outputs from inputs. Returns 0, or a negative number on failure. */
int gw_code_combine(const gw_combination* combination, char* error, size_t error_len);

/* Frees a code. Null is ignored. */
void gw_code_free(gw_code* code);

#ifdef __cplusplus
}
#endif

#endif
