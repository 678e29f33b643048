// The c10d::Backend of one process group: it dispatches the calls of PyTorch.
// Not here: the operations (reductions.hpp, movements.hpp, messages.hpp, sparse.hpp), their
// submission (submitter.hpp) and completion (work.hpp), and the opening of the rank (launch.py).
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <string>

#include "messages.hpp"
#include "monitor.hpp"
#include "movements.hpp"
#include "reductions.hpp"
#include "sparse.hpp"

namespace gradwire {

class Backend : public c10d::Backend {
 public:
  // `options` holds the timeout, and the name by which PyTorch knows this backend.
  Backend(std::shared_ptr<Rank> core, Group group, const c10::intrusive_ptr<Options>& options,
          c10::intrusive_ptr<c10d::Store> store, Staging staging)
      : c10d::Backend(group.rank, static_cast<int>(group.ranks.size())),
        options_(options),
        monitored_(std::move(store), rank_, size_) {
    options_->global_ranks_in_group.assign(group.ranks.begin(), group.ranks.end());
    submit_ = std::make_shared<Submitter>(std::move(core), std::move(group), options,
                                          staging);
    submit_->core().group_created();
    init();
  }

  ~Backend() override {
    shutdown();
  }

  const std::string getBackendName() const override {
    return options_->backend;
  }

  c10::intrusive_ptr<Options> getBackendOptions() override {
    return options_;
  }

  void setTimeout(std::chrono::milliseconds timeout) override {
    options_->timeout = timeout;
  }

  uint64_t getSequenceNumberForGroup() override {
    return submit_->sequence();
  }

  // The job's first group ends the whole job, so that every rank learns of it at once. Any other
  // group ends alone: the other groups of the job continue.
  void abort() override {
    const auto group = submit_->group().id;
    if (group != 0) return core().end_group(group);
    core().abort("rank " + std::to_string(core().place().rank) + " called abort()");
  }

  void shutdown() override {
    if (gone_.exchange(true)) return;
    const auto group = submit_->group().id;
    core().let_group_finish(group);
    core().end_group(group);
    core().group_gone();
  }

  Rank& core() const {
    return submit_->core();
  }

  bool supportsSplitting() const override {
    return true;
  }

  // Makes a group of some members of this one; null on ranks that are not in it.
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& options) override {
    const auto place = std::find(ranks.begin(), ranks.end(), rank_);
    if (place == ranks.end()) return nullptr;
    Group child{0, static_cast<int>(place - ranks.begin()), {}};
    for (const auto rank : ranks) {
      child.ranks.push_back(submit_->group().ranks[submit_->peer(rank, "split")]);
    }
    child.id = number_of_part(store, child.rank);
    auto own = c10::make_intrusive<Options>(options_->backend, options->timeout);
    own->group_name = options->group_name;
    own->group_desc = options->group_desc;
    return c10::make_intrusive<Backend>(submit_->shared_core(), std::move(child), own, store,
                                        submit_->staging());
  }

#ifdef GRADWIRE_COMPLETION_HOOKS
  // Abort hooks are left out: PyTorch's own dumps a trace for up to 15 s while the error waits.
  bool supportsCompletionHooks() const override {
    return true;
  }

  void registerCompletionHook(int64_t id, c10d::CompletionHook hook) override {
    submit_->hooks().on_completion(
        id, [hook = std::move(hook)](uint64_t key) { hook({key, std::nullopt}); });
  }

  void unregisterCompletionHook(int64_t id) override {
    submit_->hooks().forget_completion(id);
  }
#endif

  // Each operation is a Work of its own. supportsCoalescing() stays false, so that
  // batch_isend_irecv returns one Work per message, as Gloo does.
  void startCoalescing() override {
    submit_->start_coalescing();
  }

  WorkPtr endCoalescing() override {
    return submit_->end_coalescing();
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    auto& tensor = only(tensors, "all_reduce");
    return tensor.layout() == at::kStrided ? all_reduce(*submit_, tensors, options)
                                           : allreduce_sparse(tensors, options);
  }

  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    auto& tensor = only(tensors, "all_reduce");
    check_device(tensor, "all_reduce");
    return SparseSum::start(submit_, tensor, options,
                            submit_->plan(c10d::OpType::_ALLREDUCE_SPARSE, "all_reduce", tensors));
  }

  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override {
    return all_reduce_coalesced(*submit_, tensors, options);
  }

  WorkPtr allreduce_gradient(const at::Tensor& tensor, const Gradient& gradient) {
    return all_reduce_gradient(*submit_, tensor, gradient);
  }

  // One Work of several, whose result is `tensor`.
  WorkPtr join(const std::vector<WorkPtr>& works, const at::Tensor& tensor) const {
    Plan plan;
    plan.type = c10d::OpType::COALESCED;
    plan.outputs = {tensor};
    return submit_->join(std::move(plan), works);
  }

  WorkPtr reduce_scatter_gradient(const at::Tensor& output, const at::Tensor& input,
                                  const Gradient& gradient) {
    return gradwire::reduce_scatter_gradient(*submit_, {output, input}, gradient);
  }

  // Takes the residual that error feedback keeps of a tensor like this one; an undefined tensor if
  // there is none.
  at::Tensor take_residual(uint64_t tensor_key, int64_t elements, at::ScalarType type) {
    auto values = at::zeros({elements}, type);
    const auto take = [&](uint64_t key, const at::Tensor& part) {
      return core().take_residual({key, moved_dtype(part), part.data_ptr(), part.nbytes()});
    };
    const auto pieces = submit_->pieces_of(tensor_key);
    if (pieces.empty()) return take(tensor_key, values) ? values : at::Tensor();
    bool kept = false;
    for (size_t i = 0; i < pieces.size(); ++i) {
      auto part = at::zeros({pieces[i].elements()}, type);
      if (!take(key_of_piece(tensor_key, i), part)) continue;
      kept = true;
      pieces[i].spread(part, values);
    }
    return kept ? values : at::Tensor();
  }

  // Multiplies the residual of a tensor by the new scale of the loss divided by the old one.
  void scale_residual(uint64_t tensor_key, double factor) {
    const auto pieces = submit_->pieces_of(tensor_key);
    if (pieces.empty()) core().scale_residual(tensor_key, factor);
    for (size_t i = 0; i < pieces.size(); ++i) {
      core().scale_residual(key_of_piece(tensor_key, i), factor);
    }
  }

  WorkPtr lossy_message(const Address& address, const at::Tensor& tensor, const Loss& loss) {
    return gradwire::lossy_message(*submit_, address, tensor, loss);
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return gradwire::reduce(*submit_, tensors, options);
  }

  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    return gradwire::reduce_scatter(*submit_, outputs, inputs, options);
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return gradwire::broadcast(*submit_, tensors, options);
  }

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override {
    return all_gather(*submit_, outputs, inputs, options);
  }

  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override {
    return all_gather_coalesced(*submit_, outputs, inputs, options);
  }

  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override {
    return gradwire::gather(*submit_, outputs, inputs, options);
  }

  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override {
    return gradwire::scatter(*submit_, outputs, inputs, options);
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override {
    return all_to_all(*submit_, outputs, inputs, options);
  }

  // PyTorch has two names for the operations on single tensors. The names from before 2.14 exist in
  // every version, and the newer ones forward to them.
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    return gradwire::all_gather_single(*submit_, {output, input}, options);
  }

  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    return gradwire::all_gather_single_coalesced(*submit_, outputs, inputs, options);
  }

  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    return gradwire::reduce_scatter_single(*submit_, {output, input}, options);
  }

  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    return reduce_scatter_coalesced(*submit_, outputs, inputs, options);
  }

  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_rows,
                        std::vector<int64_t>& input_rows,
                        const c10d::AllToAllOptions& options) override {
    return gradwire::all_to_all_single(*submit_, {output, output_rows, "output"},
                                       {input, input_rows, "input"}, options);
  }

#ifdef C10D_BACKEND_HAS_HOOKS
  WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input,
                             const c10d::GatherOptions& options) override {
    return gradwire::gather_single(*submit_, {output, input}, options);
  }
#endif

  WorkPtr send(Tensors& tensors, int to, int tag) override {
    return gradwire::send(*submit_, tensors, to, tag);
  }

  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return gradwire::recv(*submit_, tensors, from, tag);
  }

  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    return recv_any(*submit_, tensors, tag);
  }

  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return submit_->start(submit_->collective(GW_BARRIER, options.timeout),
                          submit_->plan(c10d::OpType::BARRIER, "barrier", {}));
  }

  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override {
    using Report = MonitoredBarrier::Report;
    monitored_.pass(submit_->timeout_of(options.timeout),
                    wait_all_ranks ? Report::kAll : Report::kFirst);
  }

 private:
  // The number of a group that is split off; its first member draws it from the job's count of
  // groups, and tells the others.
  uint32_t number_of_part(const c10::intrusive_ptr<c10d::Store>& store, int position) const {
    constexpr int64_t kGroups = 1 << 16;  // group numbers have 16 bits on the wire
    const char* key = "gradwire/number";
    if (position == 0) {
      auto base = store;
      while (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(base.get())) {
        base = prefixed->getUnderlyingStore();
      }
      store->set(key, std::to_string(base->add(core().job(), 1) - 1));
    }
    const auto number = std::stoll(store->get_to_str(key));
    TORCH_CHECK(number < kGroups, "gradwire: split of group ", number + 1, " of a job, and ",
                kGroups, " is the most: use new_group(), which opens a new job then");
    return static_cast<uint32_t>(number);
  }

  c10::intrusive_ptr<Options> options_;
  MonitoredBarrier monitored_;
  std::shared_ptr<Submitter> submit_;
  std::atomic<bool> gone_{false};
};

}  // namespace gradwire
