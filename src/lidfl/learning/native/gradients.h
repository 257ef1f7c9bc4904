// Gradients of a convolution, from the gradient of what it wrote.
//
// Pooling sends each gradient to one of four positions and ReLU drops some: at most a quarter of the positions, often
// an eighth, have one. Only those are multiplied, which is exact. With x[p] the patch that position p sees:
//
//   dW[o] = Σ g · x[p]   over the live (p, g) of output o
//   dx[p] = Σ g · W[o]   over the live (o, g) of position p
//
// Both are sums of multiples of pieces of memory, and one kernel does both.
#pragma once

#include <algorithm>

#include "direct.h"

namespace lidfl {

// A multiple of what lies at an offset.
struct Multiple {
    int32_t at;
    float factor;
};

constexpr int WIDEST = 10;  // vectors that are summed at a time: enough to keep the processor's adders busy

// sums += Σ factor · source[at …], with the sums in registers.
template <int WIDTH>
inline void add_multiples(float* sums, const float* source, const Multiple* multiples, int count) {
    Vector totals[WIDTH];
#pragma GCC unroll 10
    for (int v = 0; v < WIDTH; v++) totals[v] = load(sums + v * LANES);
    for (int m = 0; m < count; m++) {
        const float* from = source + multiples[m].at;
        const float factor = multiples[m].factor;
#pragma GCC unroll 10
        for (int v = 0; v < WIDTH; v++) totals[v] += factor * load(from + v * LANES);
    }
#pragma GCC unroll 10
    for (int v = 0; v < WIDTH; v++) store(sums + v * LANES, totals[v]);
}

// What every image of a layer has in common.
class Routes {
  public:
    explicit Routes(const Convolution& layer) {
        const int scale = layer.pool ? 2 : 1, row = layer.in.row(), stride = layer.in.stride;
        for (int y = 0; y < layer.out.height; y++)
            for (int x = 0; x < layer.out.width; x++) {
                sources.push_back(scale * (y * row + x * stride));
                targets.push_back(layer.out.at(y, x));
            }
        for (int k = 0; k < 4; k++) choices[k] = (k / 2) * row + (k % 2) * stride;
        choices[DEAD] = 0;
    }

    std::vector<int32_t> sources;  // where the patch of a cell's first position starts
    std::vector<int32_t> targets;  // where the cell's outputs lie
    int32_t choices[5];            // from the first position of a cell to each of the four
};

// The live positions of one output.
inline int list_positions(const Convolution& layer, const Routes& routes, const float* gradient, const uint8_t* picks,
                          int o, Multiple* list) {
    const int outputs = layer.outputs(), cells = layer.cells();
    const int32_t* __restrict sources = routes.sources.data();
    const int32_t* __restrict targets = routes.targets.data();
    int count = 0;
    for (int cell = 0; cell < cells; cell++) {
        const int pick = picks[cell * outputs + o];
        list[count] = {sources[cell] + routes.choices[pick], gradient[targets[cell] + o]};
        count += pick != DEAD;  // a branch would be mispredicted half of the time
    }
    return count;
}

// Zeros where ReLU let nothing through.
inline void drop_dead(const Convolution& layer, const uint8_t* picks, float* gradient) {
    const int outputs = layer.outputs(), width = layer.out.width;
    for (int cell = 0; cell < layer.cells(); cell++) {
        float* here = gradient + layer.out.at(cell / width, cell % width);
        for (int o = 0; o < outputs; o += LANES) {
            const Ints dead = load_bytes(picks + cell * outputs + o) == DEAD;
            store(here + o, dead ? Vector{} : load(here + o));
        }
    }
}

// The biases' gradient, one vector of outputs: the sum over all cells, without the dead.
inline Vector sum_cells(const Convolution& layer, const float* gradient, int o) {
    Vector sums[2] = {};
    for (int y = 0; y < layer.out.height; y++)
        for (int x = 0; x < layer.out.width; x++) sums[x % 2] += load(gradient + layer.out.at(y, x) + o);
    return sums[0] + sums[1];
}

// dW of one output where all its rows fit the registers: no list, the dead are multiplied with their 0.
template <class V, int KERNEL, int WIDTH>
void add_all_rows(const Convolution& layer, const Routes& routes, const float* image, const float* gradient,
                  const uint8_t* picks, int o, float* sums) {
    constexpr int STEP = sizeof(V) / sizeof(float);
    const ptrdiff_t row = layer.in.row(), step = (layer.pool ? 2 : 1) * layer.in.stride;
    const ptrdiff_t outputs = layer.outputs();
    V totals[KERNEL][WIDTH] = {};
    for (int y = 0; y < layer.out.height; y++) {
        const float* from = image + (layer.pool ? 2 : 1) * y * row;
        const float* factors = gradient + layer.out.at(y, 0) + o;
        const uint8_t* choice = picks + y * layer.out.width * outputs + o;
        for (int x = 0; x < layer.out.width; x++, from += step, factors += outputs, choice += outputs) {
            const float* patch = from + routes.choices[*choice];
#pragma GCC unroll 10
            for (int i = 0; i < KERNEL; i++)
#pragma GCC unroll 10
                for (int v = 0; v < WIDTH; v++) totals[i][v] += *factors * load<V>(patch + i * row + v * STEP);
        }
    }
    for (int i = 0; i < KERNEL; i++)
        for (int v = 0; v < WIDTH; v++) {
            float* to = sums + i * layer.row_stride + v * STEP;
            store(to, load<V>(to) + totals[i][v]);
        }
}

// Which of these a layer can use, if any.
inline auto rows_in_registers(const Convolution& layer) -> decltype(&add_all_rows<Vector, 5, 1>) {
    const int width = layer.row_stride / LANES;
    if (layer.kernel == 5 && layer.row_stride == NARROW) return add_all_rows<Narrow, 5, 1>;
    if (layer.kernel == 5 && width == 1) return add_all_rows<Vector, 5, 1>;
    if (layer.kernel == 5 && width == 2) return add_all_rows<Vector, 5, 2>;
    if (layer.kernel == 3 && width == 1) return add_all_rows<Vector, 3, 1>;
    if (layer.kernel == 3 && width == 2) return add_all_rows<Vector, 3, 2>;
    return nullptr;
}

// dW of one output, WIDTH vectors of every kernel row.
template <int WIDTH>
void add_weight_rows(const Convolution& layer, const float* image, const Multiple* list, int count, float* sums) {
    for (int i = 0; i < layer.kernel; i++) {
        add_multiples<WIDTH>(sums + i * layer.row_stride, image + i * layer.in.row(), list, count);
    }
}

inline void add_weight_vectors(const Convolution& layer, int width, const float* image, const Multiple* list, int count,
                               float* sums) {
    switch (width) {
        case 1: return add_weight_rows<1>(layer, image, list, count, sums);
        case 2: return add_weight_rows<2>(layer, image, list, count, sums);
        case 3: return add_weight_rows<3>(layer, image, list, count, sums);
        case 4: return add_weight_rows<4>(layer, image, list, count, sums);
        case 5: return add_weight_rows<5>(layer, image, list, count, sums);
        case 6: return add_weight_rows<6>(layer, image, list, count, sums);
        case 7: return add_weight_rows<7>(layer, image, list, count, sums);
        case 8: return add_weight_rows<8>(layer, image, list, count, sums);
        case 9: return add_weight_rows<9>(layer, image, list, count, sums);
        default: return add_weight_rows<WIDEST>(layer, image, list, count, sums);
    }
}

// The gradient of output o's weights from one image is added to `weights`.
inline void add_weight_gradient(const Convolution& layer, const Routes& routes, const float* image,
                                const float* gradient, const uint8_t* picks, int o, Multiple* list, float* weights) {
    const int width = layer.row_stride / LANES;
    const auto few = rows_in_registers(layer);
    if (few != nullptr) return few(layer, routes, image, gradient, picks, o, weights);
    const int count = list_positions(layer, routes, gradient, picks, o, list);
    for (int v = 0; v < width; v += WIDEST) {
        add_weight_vectors(layer, std::min(WIDEST, width - v), image + v * LANES, list, count, weights + v * LANES);
    }
}

// The live outputs of each position of an image: (cell, choice) has `counts` of them from `stride` · (4 cell + choice).
struct PositionLists {
    std::vector<Multiple> multiples;
    std::vector<int32_t> counts;
    int stride = 0;
};

inline void list_outputs(const Convolution& layer, const Routes& routes, const float* gradient, const uint8_t* picks,
                         PositionLists& lists) {
    constexpr int BITS = 12;  // the five counts of a cell share a register
    const int outputs = layer.outputs(), size = layer.weight_size();
    for (int cell = 0; cell < layer.cells(); cell++) {
        Multiple* to = lists.multiples.data() + 5 * cell * lists.stride;
        const float* from = gradient + routes.targets[cell];
        uint64_t counts = 0;
        for (int o = 0; o < layer.out.channels; o++) {
            const int pick = picks[cell * outputs + o], shift = BITS * pick;
            const int count = (counts >> shift) & ((1 << BITS) - 1);
            to[pick * lists.stride + count] = {o * size, from[o]};
            counts += uint64_t(1) << shift;
        }
        for (int k = 0; k < 4; k++) lists.counts[4 * cell + k] = (counts >> (BITS * k)) & ((1 << BITS) - 1);
    }
}

// dx of all positions, WIDTH vectors of kernel row i. The weights they share fit the first-level cache.
template <int WIDTH>
void add_input_rows(const Convolution& layer, const Routes& routes, const float* weights, const PositionLists& lists,
                    float* gradient) {
    for (int cell = 0; cell < layer.cells(); cell++) {
        for (int k = 0; k < (layer.pool ? 4 : 1); k++) {
            const int count = lists.counts[4 * cell + k];
            if (count == 0) continue;
            const Multiple* list = lists.multiples.data() + (5 * cell + k) * lists.stride;
            add_multiples<WIDTH>(gradient + routes.sources[cell] + routes.choices[k], weights, list, count);
        }
    }
}

// The same where both positions of a cell's row are summed in the same registers: the second lies SHIFT vectors on.
template <int WIDTH, int SHIFT>
void add_input_pairs(const Convolution& layer, const Routes& routes, const float* weights, const PositionLists& lists,
                     float* gradient) {
    for (int cell = 0; cell < layer.cells(); cell++) {
        for (int k = 0; k < 4; k += 2) {
            float* to = gradient + routes.sources[cell] + routes.choices[k];
            const Multiple* list = lists.multiples.data() + (5 * cell + k) * lists.stride;
            Vector totals[WIDTH + SHIFT];
#pragma GCC unroll 16
            for (int v = 0; v < WIDTH + SHIFT; v++) totals[v] = load(to + v * LANES);
            for (int m = 0; m < lists.counts[4 * cell + k]; m++) {
                const float* from = weights + list[m].at;
#pragma GCC unroll 10
                for (int v = 0; v < WIDTH; v++) totals[v] += list[m].factor * load(from + v * LANES);
            }
            list += lists.stride;
            for (int m = 0; m < lists.counts[4 * cell + k + 1]; m++) {
                const float* from = weights + list[m].at;
#pragma GCC unroll 10
                for (int v = 0; v < WIDTH; v++) totals[SHIFT + v] += list[m].factor * load(from + v * LANES);
            }
#pragma GCC unroll 16
            for (int v = 0; v < WIDTH + SHIFT; v++) store(to + v * LANES, totals[v]);
        }
    }
}

inline void add_input_vectors(const Convolution& layer, const Routes& routes, int width, const float* weights,
                              const PositionLists& lists, float* gradient) {
    constexpr int SHIFT = 32 / LANES;  // the paper's network
    if (SHIFT + WIDEST < REGISTERS && width == WIDEST && layer.pool && layer.in.stride == 32) {
        return add_input_pairs<WIDEST, SHIFT>(layer, routes, weights, lists, gradient);
    }
    switch (width) {
        case 1: return add_input_rows<1>(layer, routes, weights, lists, gradient);
        case 2: return add_input_rows<2>(layer, routes, weights, lists, gradient);
        case 3: return add_input_rows<3>(layer, routes, weights, lists, gradient);
        case 4: return add_input_rows<4>(layer, routes, weights, lists, gradient);
        case 5: return add_input_rows<5>(layer, routes, weights, lists, gradient);
        case 6: return add_input_rows<6>(layer, routes, weights, lists, gradient);
        case 7: return add_input_rows<7>(layer, routes, weights, lists, gradient);
        case 8: return add_input_rows<8>(layer, routes, weights, lists, gradient);
        case 9: return add_input_rows<9>(layer, routes, weights, lists, gradient);
        default: return add_input_rows<WIDEST>(layer, routes, weights, lists, gradient);
    }
}

// The gradient of a layer's input image, border included.
inline void input_gradient(const Convolution& layer, const Routes& routes, const float* weights, const float* gradient,
                           const uint8_t* picks, PositionLists& lists, float* to) {
    std::memset(to, 0, layer.in.size() * sizeof(float));
    list_outputs(layer, routes, gradient, picks, lists);
    const int width = layer.run / LANES;
    for (int i = 0; i < layer.kernel; i++) {
        for (int v = 0; v < width; v += WIDEST) {
            add_input_vectors(layer, routes, std::min(WIDEST, width - v), weights + i * layer.row_stride + v * LANES,
                              lists, to + i * layer.in.row() + v * LANES);
        }
    }
}

}  // namespace lidfl
