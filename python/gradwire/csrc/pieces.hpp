// How an operation on a device is cut into pieces, each a collective of its own with host memory of
// its own, so that copies and network overlap.
//
// Each side of an operation is a matrix: a row per rank where the core wants a block per rank
// (input of reduce-scatter and scatter, output of all-gather and gather), else one row. A piece is
// the same columns of both sides. Every rank cuts alike, since the cut depends on the length alone.
// All-to-alls and messages are one piece: the other side may have other splits, or host memory.
#pragma once

#include <ATen/ATen.h>
#include <gradwire.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace gradwire {

// The longest piece. Each piece of a longer tensor has at least half of it.
constexpr int64_t kPieceBytes = int64_t{8} << 20;

// Contiguous memory of a device, as rows; without elements if this rank does not use it.
struct Side {
  at::Tensor memory;
  int64_t rows;

  bool empty() const {
    return !memory.defined() || memory.numel() == 0;
  }

  int64_t columns() const {
    return empty() ? 0 : memory.numel() / rows;
  }
};

// The memory of an operation, and which copies it needs.
struct Sides {
  Side output;
  Side input;
  bool reads_output;   // the host needs the output's values
  bool writes_output;  // the device needs the result

  static Sides of(const gw_operation& operation, const at::Tensor& output, const at::Tensor& input,
                  int rank) {
    const auto ranks = static_cast<int64_t>(operation.ranks_len);
    const auto kind = operation.kind;
    const bool is_root = operation.root == static_cast<uint32_t>(rank);
    const bool gathers = kind == GW_ALL_GATHER || kind == GW_GATHER;
    const bool scatters = kind == GW_REDUCE_SCATTER || kind == GW_SCATTER;
    const bool sends = kind == GW_SEND || (kind == GW_BROADCAST && is_root);
    const bool reduces = kind == GW_ALL_REDUCE || kind == GW_REDUCE;
    const bool only_gives = sends || (kind == GW_REDUCE && !is_root);
    return {{output, gathers ? ranks : 1},
            {input, scatters ? ranks : 1},
            sends || reduces,
            !only_gives};
  }
};

inline bool is_collective(const gw_operation& operation) {
  return operation.kind != GW_SEND && operation.kind != GW_RECV && operation.kind != GW_RECV_ANY;
}

// Columns of both sides. The sides of an all-to-all may have different lengths, so the columns of
// an operation in one piece are all that a side has.
struct Columns {
  int64_t start = 0;
  std::optional<int64_t> count = std::nullopt;

  int64_t count_of(const Side& side) const {
    return count.value_or(side.columns());
  }
};

inline std::vector<Columns> cut(const gw_operation& operation, const Sides& sides) {
  const auto all = std::max(sides.output.columns(), sides.input.columns());
  const auto& given = sides.output.empty() ? sides.input.memory : sides.output.memory;
  const bool is_cut = is_collective(operation) && operation.kind != GW_ALL_TO_ALL;
  if (all == 0 || !is_cut) return {Columns{}};
  // A rank that is not the root knows only its own block.
  const bool blocks = operation.kind == GW_ALL_GATHER || operation.kind == GW_GATHER ||
                      operation.kind == GW_REDUCE_SCATTER || operation.kind == GW_SCATTER;
  const int64_t rows = blocks ? static_cast<int64_t>(operation.ranks_len) : 1;
  const int64_t bytes = all * rows * static_cast<int64_t>(given.element_size());
  const int64_t count = (bytes + kPieceBytes - 1) / kPieceBytes;
  if (count == 1) return {Columns{}};
  constexpr int64_t kAlign = 64;  // elements
  const int64_t length = ((all + count - 1) / count + kAlign - 1) / kAlign * kAlign;
  std::vector<Columns> pieces;
  for (int64_t start = 0; start < all; start += length) {
    pieces.push_back({start, std::min(length, all - start)});
  }
  return pieces;
}

// Where a piece lies in its tensor, which has `rows` rows of `columns` elements.
struct PiecePlace {
  int64_t rows;
  int64_t columns;
  int64_t start;
  int64_t count;

  int64_t elements() const {
    return rows * count;
  }

  // Copies the elements of the piece to their places in the tensor.
  void spread(const at::Tensor& piece, const at::Tensor& whole) const {
    whole.view({rows, columns}).narrow(1, start, count).copy_(piece.view({rows, count}));
  }
};

// The core's name for one piece of a tensor; no piece has the name of a whole tensor.
inline uint64_t key_of_piece(uint64_t tensor_key, size_t piece) {
  return tensor_key | (static_cast<uint64_t>(piece + 1) << 40);
}

// An operation that is submitted later: it owns the lists that the caller's has lent.
class LaterOperation {
 public:
  explicit LaterOperation(const gw_operation& lent)
      : operation(lent),
        ranks_(lent.ranks, lent.ranks + lent.ranks_len),
        layers_(lent.layers, lent.layers + lent.layers_len) {
    operation.ranks = ranks_.data();
    if (lent.input_splits != nullptr) {
      to_.assign(lent.input_splits, lent.input_splits + lent.ranks_len);
      from_.assign(lent.output_splits, lent.output_splits + lent.ranks_len);
      operation.input_splits = to_.data();
      operation.output_splits = from_.data();
    }
    has_layers(std::move(layers_));
  }

  LaterOperation(const LaterOperation&) = delete;
  LaterOperation& operator=(const LaterOperation&) = delete;

  gw_operation operation;

 protected:
  void has_layers(std::vector<gw_layer> layers) {
    layers_ = std::move(layers);
    operation.layers = layers_.empty() ? nullptr : layers_.data();
    operation.layers_len = layers_.size();
  }

 private:
  std::vector<uint32_t> ranks_;
  std::vector<uint64_t> to_;
  std::vector<uint64_t> from_;
  std::vector<gw_layer> layers_;
};

// One piece with its host memory, from the call until its results have landed.
class Piece : public LaterOperation {
 public:
  // `number` counts the pieces of a tensor that has several.
  Piece(const gw_operation& whole, Sides sides, Columns columns, size_t number)
      : LaterOperation(whole), sides_(std::move(sides)), columns_(columns) {
    if (!columns_.count) return;
    if (whole.tensor_key != 0) operation.tensor_key = key_of_piece(whole.tensor_key, number);
    has_layers(layers_within(whole));
  }

  size_t bytes() const {
    return static_cast<size_t>(bytes_of(sides_.output) + bytes_of(sides_.input));
  }

  // Allocates host memory and enqueues the copies to it on the current stream.
  void copy_to_host() {
    output_ = host_of(sides_.output);
    input_ = host_of(sides_.input);
    if (sides_.reads_output) copy(output_, sides_.output, Direction::kToHost);
    copy(input_, sides_.input, Direction::kToHost);
    if (output_.defined()) {
      operation.buffer = output_.data_ptr();
      operation.bytes = output_.nbytes();
    }
    if (input_.defined()) {
      operation.input = input_.data_ptr();
      operation.input_bytes = input_.nbytes();
    }
  }

  // Enqueues the copies of the result on the current stream.
  void copy_to_device() {
    if (sides_.writes_output) copy(output_, sides_.output, Direction::kToDevice);
  }

 private:
  enum class Direction { kToHost, kToDevice };

  int64_t bytes_of(const Side& side) const {
    if (side.empty()) return 0;
    return side.rows * columns_.count_of(side) * static_cast<int64_t>(side.memory.element_size());
  }

  at::Tensor host_of(const Side& side) const {
    if (side.empty()) return {};
    auto options = side.memory.options().device(at::kCPU);
    if (!side.memory.is_cpu()) options = options.pinned_memory(true);
    return at::empty({side.rows, columns_.count_of(side)}, options);
  }

  void copy(const at::Tensor& host, const Side& side, Direction direction) const {
    if (side.empty()) return;
    const auto whole = side.memory.view({side.rows, side.columns()});
    for (int64_t row = 0; row < side.rows; ++row) {
      const auto there = whole.select(0, row).narrow(0, columns_.start, columns_.count_of(side));
      const auto here = host.select(0, row);
      const bool to_host = direction == Direction::kToHost;
      (to_host ? here : there).copy_(to_host ? there : here, /*non_blocking=*/true);
    }
  }

  // Layers start at bytes of the side that is reduced: the input where there is one.
  std::vector<gw_layer> layers_within(const gw_operation& whole) const {
    std::vector<gw_layer> found;
    const auto& side = sides_.input.empty() ? sides_.output : sides_.input;
    if (side.empty()) return found;
    const auto element = static_cast<uint64_t>(side.memory.element_size());
    const auto length = static_cast<uint64_t>(columns_.count_of(side)) * element;
    for (int64_t row = 0; row < side.rows; ++row) {
      const auto start = static_cast<uint64_t>(row * side.columns() + columns_.start) * element;
      add_layers(found, whole, {start, start + length}, static_cast<uint64_t>(row) * length);
    }
    return found;
  }

  // Adds the layers of the bytes `range`, which begin at byte `at` of the piece.
  static void add_layers(std::vector<gw_layer>& found, const gw_operation& whole,
                         std::pair<uint64_t, uint64_t> range, uint64_t at) {
    const auto [start, end] = range;
    for (size_t i = 0; i < whole.layers_len; ++i) {
      const auto& layer = whole.layers[i];
      const bool is_before = i + 1 < whole.layers_len && whole.layers[i + 1].offset_bytes <= start;
      if (is_before || layer.offset_bytes >= end) continue;
      if (!found.empty() && found.back().layer == layer.layer) continue;
      found.push_back({at + std::max(layer.offset_bytes, start) - start, layer.layer, 0});
    }
  }

  Sides sides_;
  Columns columns_;
  at::Tensor output_;
  at::Tensor input_;
};

}  // namespace gradwire
