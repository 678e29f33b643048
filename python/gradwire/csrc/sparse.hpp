// All-reduce of sparse COO tensors: the sum of all ranks' tensors.
//
// It takes two all-gathers. The first carries each rank's number of entries and shape; the second
// carries the entries, padded to the largest number. Each rank then sums in the order of the group,
// so all ranks get the same bits. A tensor on a device is copied to the host at the call, which
// waits for it, since the number of its entries is needed.
#pragma once

#include "movements.hpp"

namespace gradwire {

class SparseSum : public std::enable_shared_from_this<SparseSum> {
 public:
  static WorkPtr start(const std::shared_ptr<Submitter>& submit, const at::Tensor& tensor,
                       const c10d::AllreduceOptions& options, Plan plan) {
    TORCH_CHECK(options.reduceOp == c10d::ReduceOp::SUM, "gradwire: ",
                reduction_name(options.reduceOp.op_),
                " of a sparse tensor: sparse tensors can be summed only");
    TORCH_CHECK(tensor.layout() == at::kSparse, "gradwire: all_reduce of a ", tensor.layout(),
                " tensor: give a dense or a sparse COO one (tensor.to_sparse())");
    TORCH_CHECK(tensor.dim() <= kMaxDims, "gradwire: all_reduce of a sparse tensor of ",
                tensor.dim(), " dimensions: ", kMaxDims, " is the most");
    auto sum = std::make_shared<SparseSum>(submit, tensor, options.timeout);
    return sum->run(std::move(plan));
  }

  // Both sequence numbers are drawn here, so that they follow the order of the calls.
  SparseSum(std::shared_ptr<Submitter> submit, at::Tensor target, Milliseconds timeout)
      : submit_(std::move(submit)),
        target_(std::move(target)),
        own_(target_.coalesce().to(at::kCPU)),
        shapes_op_(submit_->collective(GW_ALL_GATHER, timeout)),
        entries_op_(submit_->collective(GW_ALL_GATHER, timeout)) {}

 private:
  static constexpr int64_t kMaxDims = 13;
  static constexpr int64_t kHeader = 3;  // entries, sparse dimensions, dense dimensions; then sizes

  using Future = c10::ivalue::Future;

  WorkPtr run(Plan plan) {
    plan.land = [self = shared_from_this()] { self->add_up(); };
    if (!target_.is_cpu()) {
      const auto device = target_.device();
      const auto called = std::make_shared<Mark>(Mark::here(device));
      plan.landing = Landing{submit_->shared_core(), {device}, called, 0};
    }
    const auto work = c10::make_intrusive<PlannedWork>(submit_->rank(), std::move(plan));
    const auto shape = shape_of(own_);
    shapes_ = detail::rows_of(*submit_, shape);
    shapes_op_.dtype = GW_I64;
    const auto shapes = submit_->from_input(shapes_op_, {shapes_, shape}, uncut());
    then(shapes, work, [self = shared_from_this(), work] {
      const auto entries = self->gather_entries();
      then(entries, work, [work] { work->settle(nullptr); });
    });
    return work;
  }

  // Continues with `next` when `before` has ended; a failure of either fails the whole.
  template <typename Next>
  static void then(const WorkPtr& before, const c10::intrusive_ptr<PlannedWork>& whole, Next next) {
    before->getFuture()->addCallback([whole, next](Future& ended) {
      if (ended.hasError()) {
        whole->settle(ended.exception_ptr());
        return;
      }
      try {
        at::NoGradGuard no_grad;
        next();
      } catch (...) {
        whole->settle(std::current_exception());
      }
    });
  }

  static at::Tensor shape_of(const at::Tensor& tensor) {
    auto shape = at::zeros({kHeader + kMaxDims}, at::kLong);
    auto* at = shape.data_ptr<int64_t>();
    *at++ = tensor._nnz();
    *at++ = tensor.sparse_dim();
    *at++ = tensor.dense_dim();
    for (const auto size : tensor.sizes()) *at++ = size;
    return shape;
  }

  // A row of bytes per rank: indices, then values, padded to the largest number of entries.
  WorkPtr gather_entries() {
    const auto own = shapes_[submit_->rank()].slice(0, 1);
    for (int rank = 0; rank < submit_->size(); ++rank) {
      TORCH_CHECK(shapes_[rank].slice(0, 1).equal(own), "gradwire: all_reduce of a sparse tensor ",
                  "of shape ", own_.sizes(), " with ", own_.sparse_dim(),
                  " sparse dimensions, but rank ", rank, " gives another shape: all must agree");
    }
    most_ = shapes_.select(1, 0).max().item<int64_t>();
    const auto row = at::zeros({bytes_of_indices() + bytes_of_values()}, at::kByte);
    indices_in(row).narrow(1, 0, own_._nnz()).copy_(own_._indices());
    values_in(row).narrow(0, 0, own_._nnz()).copy_(own_._values());
    rows_ = detail::rows_of(*submit_, row);
    return submit_->from_input(entries_op_, {rows_, row}, uncut());
  }

  // Pieces would have numbers that do not follow the order of the calls.
  static Plan uncut() {
    Plan plan;
    plan.whole = true;
    return plan;
  }

  void add_up() {
    Tensors indices;
    Tensors values;
    for (int rank = 0; rank < submit_->size(); ++rank) {
      const auto entries = shapes_[rank][0].item<int64_t>();
      indices.push_back(indices_in(rows_[rank]).narrow(1, 0, entries));
      values.push_back(values_in(rows_[rank]).narrow(0, 0, entries));
    }
    const auto all = at::sparse_coo_tensor(at::cat(indices, 1), at::cat(values), own_.sizes());
    target_.copy_(all.coalesce().to(target_.device()));
  }

  at::Tensor indices_in(const at::Tensor& row) const {
    const auto length = own_.sparse_dim() * most_ * static_cast<int64_t>(sizeof(int64_t));
    return row.narrow(0, 0, length).view(at::kLong).view({own_.sparse_dim(), most_});
  }

  at::Tensor values_in(const at::Tensor& row) const {
    std::vector<int64_t> sizes{most_};
    for (const auto size : own_.sizes().slice(own_.sparse_dim())) sizes.push_back(size);
    const auto length = c10::multiply_integers(sizes) * itemsize();
    return row.narrow(0, bytes_of_indices(), length).view(own_.scalar_type()).view(sizes);
  }

  // Both are rounded up so that the bytes after them are aligned for every element type.
  int64_t bytes_of_indices() const {
    return aligned(own_.sparse_dim() * most_ * static_cast<int64_t>(sizeof(int64_t)));
  }

  int64_t bytes_of_values() const {
    const auto dense = own_.sizes().slice(own_.sparse_dim());
    return aligned(most_ * c10::multiply_integers(dense) * itemsize());
  }

  static int64_t aligned(int64_t bytes) {
    return (bytes + 15) / 16 * 16;
  }

  int64_t itemsize() const {
    return static_cast<int64_t>(own_.element_size());
  }

  std::shared_ptr<Submitter> submit_;
  at::Tensor target_;
  at::Tensor own_;
  gw_operation shapes_op_;
  gw_operation entries_op_;
  at::Tensor shapes_;  // a row per rank: entries, sparse and dense dimensions, sizes
  at::Tensor rows_;
  int64_t most_ = 0;  // entries of the rank that has most
};

}  // namespace gradwire
