// Graph attention over bits: the scores of a row's edges, their exponentials, then weighted sums of
// the sources' bits with a row's features in the lanes. Bound by the exponentials and the gathers.
// Included after bmm/cpu/bmm_kernel.h, once per CPU capability; BITGNN_ISA names the namespace of
// its primitives.

#include "gat/cpu/scores.h"
#include "gat/exponential.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// Room of a thread for one row at a time.
struct GatRoom {
  std::vector<float> weights;            // [edges of the row, heads]
  std::vector<float> most, sums, piece;  // [heads]
};

// Scores of edges [begin, end) of a row by those of their ends.
void add_scores(const GatPlan& a, int64_t row, int64_t begin, int64_t end, float* scores) {
  if (a.source == nullptr) {
    const float* edge = a.edge + begin * a.heads;
    for (int64_t i = 0; i < (end - begin) * a.heads; ++i) scores[i] = leaky(edge[i], a.slope);
    return;
  }
  const float* target = a.target + row * a.target_stride;
  for (int64_t e = begin; e < end; ++e, scores += a.heads) {
    const float* source = a.source + a.indices[e] * a.source_stride;
    if (a.edge != nullptr) {
      const float* edge = a.edge + e * a.heads;
      for (int64_t h = 0; h < a.heads; ++h)
        scores[h] = leaky((source[h] + target[h]) + edge[h], a.slope);
    } else {
      for (int64_t h = 0; h < a.heads; ++h) scores[h] = leaky(source[h] + target[h], a.slope);
    }
  }
}

// The same by the bits of both ends.
void look_scores_up(const GatPlan& a, int64_t row, int64_t begin, int64_t end, float* scores) {
  const int64_t words = words_for(a.width);
  const auto* right = reinterpret_cast<const uint8_t*>(a.right + row * words);
  for (int64_t e = begin; e < end; ++e, scores += a.heads) {
    const auto* left = reinterpret_cast<const uint8_t*>(a.left + a.indices[e] * words);
    for (int64_t h = 0, part = 0; h < a.heads; ++h) {
      uint32_t sum = 0;
      for (; part < a.num_parts && a.parts[part].head == h; ++part) {
        const GatPart& p = a.parts[part];
        sum += p.alone[left[p.byte]] + p.both[left[p.byte] & right[p.byte]];
      }
      scores[h] = a.step[h] * static_cast<float>(static_cast<int32_t>(sum));
    }
  }
}

// A dot product in the order of kDotParts.
inline float dot(const float* a, const float* b, int64_t count) {
  float sums[kDotParts] = {};
  int64_t k = 0;
  for (; k + kDotParts <= count; k += kDotParts)
    for (int part = 0; part < kDotParts; ++part) sums[part] += a[k + part] * b[k + part];
  for (int part = 0; k < count; ++k, ++part) sums[part] += a[k] * b[k];
  for (int half = kDotParts / 2; half > 0; half /= 2)
    for (int part = 0; part < half; ++part) sums[part] += sums[part + half];
  return sums[0];
}

// The same by the dot products of queries and keys.
void multiply_rows(const GatPlan& a, int64_t row, int64_t begin, int64_t end, float* scores) {
  const int64_t channels = a.width / a.heads;
  const float* query = a.target + row * a.target_stride;
  for (int64_t e = begin; e < end; ++e, scores += a.heads) {
    const float* key = a.source + a.indices[e] * a.source_stride;
    for (int64_t h = 0; h < a.heads; ++h) {
      scores[h] = dot(query + h * channels, key + h * channels, channels);
      if (a.edge != nullptr) scores[h] += a.edge[e * a.heads + h];
    }
  }
}

void find_scores(const GatPlan& a, int64_t row, int64_t begin, int64_t end, float* scores) {
  switch (a.scores) {
    case GatScores::kNodes:
      return add_scores(a, row, begin, end, scores);
    case GatScores::kPairs:
      return look_scores_up(a, row, begin, end, scores);
    case GatScores::kDots:
      return multiply_rows(a, row, begin, end, scores);
  }
}

// Turns the scores of a row into weights, and adds these up for each head.
void weigh(const GatPlan& a, int64_t degree, GatRoom& room) {
  const int64_t heads = a.heads, count = degree * heads;
  float* const weights = room.weights.data();
  float* const most = room.most.data();
  float* const sums = room.sums.data();
  float* const piece = room.piece.data();
  for (int64_t h = 0; h < heads; ++h) {
    most[h] = -std::numeric_limits<float>::infinity();
    sums[h] = 0.0f;
  }
  for (int64_t i = 0; i < count; i += heads)
    for (int64_t h = 0; h < heads; ++h)
      most[h] = weights[i + h] > most[h] ? weights[i + h] : most[h];
  for (int64_t i = 0; i < count; i += heads)
    for (int64_t h = 0; h < heads; ++h) weights[i + h] -= most[h];
  for (int64_t i = 0; i < count; ++i) weights[i] = exponential(weights[i]);
  for (int64_t first = 0; first < degree; first += kGatPiece) {
    const int64_t last = degree - first < kGatPiece ? degree : first + kGatPiece;
    for (int64_t h = 0; h < heads; ++h) piece[h] = 0.0f;
    for (int64_t i = first; i < last; ++i)
      for (int64_t h = 0; h < heads; ++h) piece[h] += weights[i * heads + h];
    for (int64_t h = 0; h < heads; ++h) sums[h] += piece[h];
  }
}

// Weights of 32 features by those of their heads, which have so many channels.
inline Lanes spread(const float* weights, int64_t first, int64_t channels, int64_t heads) {
  if (channels % kWordBits == 0) return broadcast_lanes(weights[first / channels]);
  float lanes[kWordBits];
  if (channels == 8 && first / 8 + 4 <= heads) {
    for (int64_t h = 0; h < 4; ++h)
      for (int64_t k = 0; k < 8; ++k) lanes[8 * h + k] = weights[first / 8 + h];
    return load_lanes(lanes);
  }
  int64_t head = first / channels, left = channels - first % channels;
  for (int64_t k = 0; k < kWordBits; ++k) {
    if (left == 0) {
      ++head;
      left = channels;
    }
    lanes[k] = weights[head < heads ? head : heads - 1];
    --left;
  }
  return load_lanes(lanes);
}

// Words of a row's results: W words of x from `first_word` on for one head, or for their own heads
// where `head` is below 0.
template <int W>
void sum_words(const GatPlan& a, int64_t row, int64_t first_word, int64_t head,
               const GatRoom& room) {
  const int64_t begin = a.row_begin(row), degree = a.row_begin(row + 1) - begin;
  const int64_t words = words_for(a.size), channels = a.shared ? a.size : a.size / a.heads;
  Lanes total[W];
  for (auto& t : total) t = zero_lanes();
  for (int64_t at = 0; at < degree; at += kGatPiece) {
    const int64_t last = degree - at < kGatPiece ? degree : at + kGatPiece;
    Lanes piece[W];
    for (auto& p : piece) p = zero_lanes();
    for (int64_t i = at; i < last; ++i) {
      const int32_t* x = a.x + a.indices[begin + i] * words + first_word;
      const float* weights = room.weights.data() + i * a.heads;
      for (int w = 0; w < W; ++w) {
        const Lanes signs = signed_lanes(static_cast<uint32_t>(x[w]), 1.0f);
        const Lanes lanes = head >= 0
                                ? broadcast_lanes(weights[head])
                                : spread(weights, (first_word + w) * kWordBits, channels, a.heads);
        piece[w] = add(piece[w], mul(lanes, signs));
      }
    }
    for (int w = 0; w < W; ++w) total[w] = add(total[w], piece[w]);
  }
  for (int w = 0; w < W; ++w) {
    const int64_t first = (first_word + w) * kWordBits;
    const int64_t count = a.size - first < kWordBits ? a.size - first : kWordBits;
    const int64_t column = (head >= 0 ? head * a.size : 0) + first;
    float values[kWordBits] = {};
    store_lanes(values, total[w]);
    uint32_t bits = 0;
    for (int64_t k = 0; k < count; ++k) {
      const int64_t own = head >= 0 ? head : (first + k) / channels;
      float v = degree > 0 ? values[k] / room.sums[static_cast<size_t>(own)] : 0.0f;
      if (a.bias != nullptr) v += a.bias[column + k];
      values[k] = v;
      const float least = a.threshold != nullptr ? a.threshold[column + k] : 0.0f;
      bits |= static_cast<uint32_t>(v >= least) << k;
    }
    if (a.out_bits != nullptr) {
      a.out_bits[row * words + first_word + w] = static_cast<int32_t>(bits);
    } else {
      std::memcpy(a.out_float + row * a.columns() + column, values,
                  static_cast<size_t>(count) * sizeof(float));
    }
  }
}

void sum_row(const GatPlan& a, int64_t row, int64_t head, const GatRoom& room) {
  const int64_t words = words_for(a.size);
  int64_t w = 0;
  for (; w + 4 <= words; w += 4) sum_words<4>(a, row, w, head, room);
  if (w + 2 <= words) {
    sum_words<2>(a, row, w, head, room);
    w += 2;
  }
  if (w < words) sum_words<1>(a, row, w, head, room);
}

void gat(const GatPlan& a, int64_t begin, int64_t end) {
  GatRoom room;
  const auto heads = static_cast<size_t>(a.heads);
  room.most.resize(heads);
  room.sums.resize(heads);
  room.piece.resize(heads);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = a.row_begin(row), last = a.row_begin(row + 1);
    const auto needed = static_cast<size_t>((last - first) * a.heads);
    if (room.weights.size() < needed) room.weights.resize(needed);
    find_scores(a, row, first, last, room.weights.data());
    weigh(a, last - first, room);
    if (!a.shared) sum_row(a, row, -1, room);
    for (int64_t h = 0; a.shared && h < a.heads; ++h) sum_row(a, row, h, room);
  }
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
