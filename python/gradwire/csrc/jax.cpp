// The all-reduce that XLA calls on a CPU, in the order of the tokens that JAX passes through it.
// Not here: the opening of the rank, and the primitive (gradwire/jax.py).
#include <gradwire.h>
#include <xla/ffi/api/ffi.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

namespace {

namespace ffi = xla::ffi;

// The rank that this process has open. A compiled program outlives it, so it does not name it.
struct Session {
  std::shared_mutex mutex;
  gw_rank* rank = nullptr;
  std::vector<uint32_t> ranks;
  double timeout_seconds = 0;
  std::atomic<uint32_t> sequence{0};
};

Session& session() {
  static Session one;
  return one;
}

// The end of an operation, which any thread may report.
struct End {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_there = false;
  std::string error;

  static void report(void* user, int code, const char* message) {
    auto& end = *static_cast<End*>(user);
    std::lock_guard lock(end.mutex);
    if (code != 0) end.error = message != nullptr ? message : "the operation failed";
    end.is_there = true;
    end.changed.notify_all();
  }

  const std::string& await() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return is_there; });
    return error;
  }
};

std::optional<uint32_t> dtype_of(ffi::DataType type) {
  switch (type) {
    case ffi::U8: return GW_U8;
    case ffi::S8: return GW_I8;
    case ffi::S16: return GW_I16;
    case ffi::S32: return GW_I32;
    case ffi::S64: return GW_I64;
    case ffi::U16: return GW_U16;
    case ffi::U32: return GW_U32;
    case ffi::U64: return GW_U64;
    case ffi::F16: return GW_F16;
    case ffi::BF16: return GW_BF16;
    case ffi::F32: return GW_F32;
    case ffi::F64: return GW_F64;
    default: return std::nullopt;
  }
}

ffi::Error run(Session& at, gw_operation& operation) {
  char error[2048] = "";
  End end;
  auto* ticket = gw_submit(at.rank, &operation, End::report, &end, error, sizeof error);
  if (ticket == nullptr) return ffi::Error(ffi::ErrorCode::kInvalidArgument, error);
  // Returns early where another thread drives; the end is awaited below in any case.
  gw_wait(at.rank, ticket, at.timeout_seconds, error, sizeof error);
  const auto failure = end.await();
  gw_ticket_free(ticket);
  return failure.empty() ? ffi::Error::Success()
                         : ffi::Error(ffi::ErrorCode::kAborted, failure);
}

ffi::Error all_reduce(ffi::Token, ffi::AnyBuffer input, ffi::Result<ffi::Token>,
                      ffi::Result<ffi::AnyBuffer> output, int64_t op, double tolerance,
                      int64_t key) {
  auto& at = session();
  std::shared_lock lock(at.mutex);
  if (at.rank == nullptr) {
    return ffi::Error(ffi::ErrorCode::kFailedPrecondition,
                      "gradwire.jax: this process is in no job: call gradwire.jax.init() first");
  }
  const auto dtype = dtype_of(input.element_type());
  if (!dtype) {
    return ffi::Error(ffi::ErrorCode::kInvalidArgument,
                      "gradwire.jax: all_reduce takes integers of 8 to 64 bits, float16, "
                      "bfloat16, float32 and float64");
  }
  if (output->untyped_data() != input.untyped_data()) {
    std::memcpy(output->untyped_data(), input.untyped_data(), input.size_bytes());
  }
  const uint32_t number = at.sequence++;
  if (at.ranks.size() == 1 || input.size_bytes() == 0) return ffi::Error::Success();
  gw_operation operation{};
  operation.kind = GW_ALL_REDUCE;
  operation.dtype = *dtype;
  operation.reduce = static_cast<uint32_t>(op);
  operation.buffer = output->untyped_data();
  operation.bytes = input.size_bytes();
  operation.ranks = at.ranks.data();
  operation.ranks_len = at.ranks.size();
  operation.sequence = number;
  operation.step = number;
  operation.tolerance = tolerance;
  operation.tensor_key = static_cast<uint64_t>(key);
  operation.timeout_seconds = at.timeout_seconds;
  return run(at, operation);
}

}  // namespace

// Uses a rank of a job of `world` ranks from now on; null, for none, waits for running operations.
extern "C" void gradwire_jax_use(gw_rank* rank, uint32_t world, double timeout_seconds) {
  auto& at = session();
  std::unique_lock lock(at.mutex);
  at.rank = rank;
  at.ranks.resize(world);
  std::iota(at.ranks.begin(), at.ranks.end(), 0);
  at.timeout_seconds = timeout_seconds;
  at.sequence = 0;
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(gradwire_jax_all_reduce, all_reduce,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Token>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::Token>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<int64_t>("op")
                                  .Attr<double>("tolerance")
                                  .Attr<int64_t>("key"));
