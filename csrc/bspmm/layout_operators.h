// BSpMM.BBB and BBF over the layouts other than CSR: FRDC tiles and column slices.
#pragma once

#include <algorithm>

#include "bspmm/problem.h"

namespace bitgnn::ops {

// Stands for the number of edges if only the row pointer holds it.
constexpr int64_t kUnknownEdges = -1;

template <class Backend>
struct BspmmLayoutOperators {
  using Problems = BspmmProblems<Backend>;
  using Problem = typename Problems::Problem;

  static Tensor frdc(const char* op, const Tensor& x, int64_t size, const Tensor& tile_rowptr,
                     const Tensor& tile_cols, const Tensor& tiles, int64_t num_rows, Output output,
                     const OptionalTensor& row, const OptionalTensor& bias,
                     const OptionalTensor& threshold, bool trusted) {
    Problem p(x, op);
    p.indices = Problems::index_vector(p, tile_cols, ScalarType::Int, "tile_cols");
    p.csr.indices = p.indices.template const_data_ptr<int32_t>();
    Problems::set_rowptr(p, tile_rowptr, tile_cols.size(0), "tile_rowptr");
    Problems::set_bits(p, x, size);
    p.extra = Problems::index_vector(p, tiles, ScalarType::Short, "tiles");
    check_size(tiles.size(0), tile_cols.size(0), op, "entries of tiles");
    BITGNN_CHECK(num_rows >= 0, op, ": num_rows must not be negative, got ", num_rows);
    check_size(p.csr.rows, (num_rows + kTileDim - 1) / kTileDim, op, "the number of tile rows");
    p.csr.rows = num_rows;
    if (!trusted) check_frdc(p);
    Tensor out = Problems::finish(p, output, row, bias, threshold);
    const FrdcArgs args{p.csr, p.extra->template const_data_ptr<int16_t>()};
    if (out.numel() > 0) p.backend.launch(kernel::aggregate_frdc, args);
    return out;
  }

  static void check_frdc(const Problem& p) {
    const typename Problems::HostPointers rowptr(p);
    const typename Problems::template HostVector<int32_t> tile_cols(p, p.indices);
    const typename Problems::template HostVector<int16_t> tiles(p, *p.extra);
    check_tiles(rowptr.get(), tile_cols.data(), tiles.data(), p.csr.edges, p.csr.rows, p.csr.cols,
                p.op);
  }

  static Tensor bbb_frdc(const Tensor& x, int64_t size, const Tensor& tile_rowptr,
                         const Tensor& tile_cols, const Tensor& tiles, int64_t num_rows,
                         const OptionalTensor& row, const OptionalTensor& threshold, bool trusted) {
    return frdc("bspmm_bbb_frdc", x, size, tile_rowptr, tile_cols, tiles, num_rows, Output::kBits,
                row, {}, threshold, trusted);
  }

  static Tensor bbf_frdc(const Tensor& x, int64_t size, const Tensor& tile_rowptr,
                         const Tensor& tile_cols, const Tensor& tiles, int64_t num_rows,
                         const OptionalTensor& row, const OptionalTensor& bias, bool integer,
                         bool trusted) {
    const char* op = "bspmm_bbf_frdc";
    return frdc(op, x, size, tile_rowptr, tile_cols, tiles, num_rows,
                Problems::value_output(integer, row, bias, op), row, bias, {}, trusted);
  }

  // An int32 vector of the layout, kept alive by the problem, whose size is given if known.
  static const int32_t* layout_vector(Problem& p, const Tensor& t, const char* name,
                                      int64_t size = -1) {
    p.held.push_back(Problems::index_vector(p, t, ScalarType::Int, name));
    BITGNN_CHECK(size < 0 || t.size(0) == size, p.op, ": ", name, " must have ", size,
                 " entries, got ", t.size(0));
    return p.held.back().template const_data_ptr<int32_t>();
  }

  // Checks the layout and sets the problem's rows and x; the caller sets the rest of `csr`.
  static SlicedArgs sliced_args(Problem& p, const Tensor& x, int64_t size, const Tensor& rowptr,
                                const Tensor& local_indices, const Tensor& group_steps,
                                const Tensor& group_places, const Tensor& slice_groups,
                                const Tensor& row_slots, const Tensor& row_items,
                                int64_t slice_size, int64_t places, bool trusted,
                                const char* name = "x") {
    const char* op = p.op;
    BITGNN_CHECK(slice_size >= 1 && slice_size <= 65535, op,
                 ": slice_size must be from 1 to 65535, got ", slice_size);
    BITGNN_CHECK(places >= 0, op, ": places must not be negative, got ", places);
    // The number of edges is not known here, as local_indices has padding.
    Problems::set_rowptr(p, rowptr, kUnknownEdges, "rowptr");
    Problems::set_bits(p, x, size, name);
    p.indices = Problems::index_vector(p, local_indices, ScalarType::Short, "local_indices");
    check_size(p.indices.size(0) % (kSliceLanes * kSliceStepEdges), 0, op,
               "the remainder of local_indices' size by a step's entries");
    SlicedArgs args{};
    args.group_places = layout_vector(p, group_places, "group_places");
    args.groups = group_places.size(0);
    // An item takes at most three units.
    BITGNN_CHECK(places <= 3 * kSliceLanes * args.groups, op, ": places must be at most ",
                 3 * kSliceLanes * args.groups, " for ", args.groups, " groups, got ", places);
    args.group_steps = layout_vector(p, group_steps, "group_steps", args.groups + 1);
    args.num_slices = std::max<int64_t>(1, (p.csr.cols + slice_size - 1) / slice_size);
    args.slice_groups = layout_vector(p, slice_groups, "slice_groups", args.num_slices + 1);
    args.row_slots = layout_vector(p, row_slots, "row_slots", p.csr.rows + 1);
    args.row_items = layout_vector(p, row_items, "row_items");
    args.slice_size = slice_size;
    args.places = places;
    args.local_indices =
        reinterpret_cast<const uint16_t*>(p.indices.template const_data_ptr<int16_t>());
    if (!trusted) check_sliced(p, args);
    return args;
  }

  // Expects the tables in p.held in the order of sliced_args().
  static void check_sliced(const Problem& p, const SlicedArgs& a) {
    using Vector = typename Problems::template HostVector<int32_t>;
    const typename Problems::HostPointers rowptr(p);
    const int64_t rows = p.csr.rows;
    const int64_t edges = rowptr.get()[rows];
    check_row_pointers(rowptr.get(), rows + 1, edges, p.op, "rowptr");
    BITGNN_CHECK(edges <= p.indices.size(0), p.op, ": rowptr must end at ", p.indices.size(0),
                 " or before, the entries of local_indices, got ", edges);
    const Vector places(p, p.held[0]), steps(p, p.held[1]), slices(p, p.held[2]);
    const Vector slots(p, p.held[3]), items(p, p.held[4]);
    const typename Problems::template HostVector<uint16_t> indices(p, p.indices);
    SlicedTables t{};
    t.local_indices = indices.data();
    t.group_steps = steps.data();
    t.group_places = places.data();
    t.slice_groups = slices.data();
    t.row_slots = slots.data();
    t.row_items = items.data();
    t.steps = p.indices.size(0) / (kSliceLanes * kSliceStepEdges);
    t.groups = a.groups;
    t.slices = a.num_slices;
    t.rows = rows;
    t.cols = p.csr.cols;
    t.items = p.held[4].size(0);
    t.slice_size = a.slice_size;
    t.places = a.places;
    check_slices(t, p.op);
  }

  static Tensor sliced(const char* op, const Tensor& x, int64_t size, const Tensor& rowptr,
                       const Tensor& local_indices, const Tensor& group_steps,
                       const Tensor& group_places, const Tensor& slice_groups,
                       const Tensor& row_slots, const Tensor& row_items, int64_t slice_size,
                       int64_t places, Output output, const OptionalTensor& row,
                       const OptionalTensor& bias, const OptionalTensor& threshold, bool trusted) {
    Problem p(x, op);
    SlicedArgs args = sliced_args(p, x, size, rowptr, local_indices, group_steps, group_places,
                                  slice_groups, row_slots, row_items, slice_size, places, trusted);
    Tensor out = Problems::finish(p, output, row, bias, threshold);
    args.csr = p.csr;
    if (out.numel() > 0) p.backend.launch(kernel::aggregate_sliced, args);
    return out;
  }

  static Tensor bbb_sliced(const Tensor& x, int64_t size, const Tensor& rowptr,
                           const Tensor& local_indices, const Tensor& group_steps,
                           const Tensor& group_places, const Tensor& slice_groups,
                           const Tensor& row_slots, const Tensor& row_items, int64_t slice_size,
                           int64_t places, const OptionalTensor& row,
                           const OptionalTensor& threshold, bool trusted) {
    return sliced("bspmm_bbb_sliced", x, size, rowptr, local_indices, group_steps, group_places,
                  slice_groups, row_slots, row_items, slice_size, places, Output::kBits, row, {},
                  threshold, trusted);
  }

  static Tensor bbf_sliced(const Tensor& x, int64_t size, const Tensor& rowptr,
                           const Tensor& local_indices, const Tensor& group_steps,
                           const Tensor& group_places, const Tensor& slice_groups,
                           const Tensor& row_slots, const Tensor& row_items, int64_t slice_size,
                           int64_t places, const OptionalTensor& row, const OptionalTensor& bias,
                           bool integer, bool trusted) {
    const char* op = "bspmm_bbf_sliced";
    return sliced(op, x, size, rowptr, local_indices, group_steps, group_places, slice_groups,
                  row_slots, row_items, slice_size, places,
                  Problems::value_output(integer, row, bias, op), row, bias, {}, trusted);
  }
};

}  // namespace bitgnn::ops
