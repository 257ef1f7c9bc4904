// Convolution by its definition, with bias, pooling and ReLU in one go:
//
//   y[o] = b[o] + Σ_ijc W[i, j, c, o] · x[y + i, x + j, c]
//
// A block of outputs stays in registers: each weight that is read serves several positions, each pixel several
// outputs. Where the layer pools, a block covers whole 2×2 cells and only their maxima are written.
#pragma once

#include "settling.h"

namespace lidfl {

// The sums of ROWS × COLUMNS positions for VECTORS vectors of outputs. CHANNELS is 0 where it is known only at run time.
template <int CHANNELS, int KERNEL, int ROWS, int COLUMNS, int VECTORS>
inline void sum_block(const Convolution& layer, const float* x, const float* w, const float* bias,
                      Vector (&sums)[ROWS][COLUMNS][VECTORS]) {
    const int channels = CHANNELS > 0 ? CHANNELS : layer.in.stride;
    const ptrdiff_t x_row = layer.in.row();
    const int kernel = KERNEL > 0 ? KERNEL : layer.kernel, run = kernel * channels, outputs = layer.outputs();
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            for (int v = 0; v < VECTORS; v++) sums[r][c][v] = load(bias + v * LANES);
    for (int i = 0; i < kernel; i++, x += x_row) {
#pragma GCC unroll 5
        for (int t = 0; t < run; t++, w += outputs) {
            Vector weights[VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) weights[v] = load(w + v * LANES);
#pragma GCC unroll 4
            for (int r = 0; r < ROWS; r++) {
#pragma GCC unroll 8
                for (int c = 0; c < COLUMNS; c++) {
                    const float pixel = x[r * x_row + c * channels + t];
#pragma GCC unroll 4
                    for (int v = 0; v < VECTORS; v++) sums[r][c][v] += pixel * weights[v];
                }
            }
        }
    }
}

// One value of each output in a vector, through ReLU; `gap` is by how much it is the largest of its cell.
inline void write_value(const Convolution& layer, Target to, int cell, int picks, int o, Vector value, Ints pick,
                        Vector gap) {
    const Vector zero = {};
    if (to.picks != nullptr) {
        store_bytes(to.unsure + picks + o, is_unsure(layer, value, gap, load(to.tolerances + o)));
        if (layer.relu) pick = value > zero ? pick : Ints{} + DEAD;
        store_bytes(to.picks + picks + o, pick);
    }
    store(to.values + cell + o, layer.relu ? larger(value, zero) : value);
}

// The largest of a cell's four values; the earlier one stays where they are equal.
inline Vector cell_maximum(Vector a, Vector b, Vector c, Vector d, Ints& pick) {
    pick = b > a ? Ints{} + 1 : Ints{};
    Vector best = b > a ? b : a;
    pick = c > best ? Ints{} + 2 : pick;
    best = c > best ? c : best;
    pick = d > best ? Ints{} + 3 : pick;
    return d > best ? d : best;
}

// The maximum of a cell's four values goes to where the cell's values and picks start.
inline void write_cell(const Convolution& layer, Target to, int cell, int picks, int o, Vector a, Vector b, Vector c,
                       Vector d) {
    Ints pick;
    const Vector best = cell_maximum(a, b, c, d, pick);
    const Vector gap = to.picks == nullptr ? Vector{} : best - cell_second(a, b, c, d);
    write_value(layer, to, cell, picks, o, best, pick, gap);
}

// One block of a row of outputs: COLUMNS positions, or half as many cells where the layer pools.
template <int CHANNELS, int KERNEL, int ROWS, int COLUMNS, int VECTORS>
void write_block(const Convolution& layer, const float* image, const float* w, const float* bias, int y, int x, int o,
                 Target to) {
    Vector sums[ROWS][COLUMNS][VECTORS];
    const float* from = image + ROWS * y * layer.in.row() + ROWS * x * layer.in.stride;
    sum_block<CHANNELS, KERNEL, ROWS, COLUMNS, VECTORS>(layer, from, w + o, bias + o, sums);
    for (int c = 0; c < COLUMNS / ROWS; c++) {
        const int cell = layer.out.at(y, x + c), picks = (y * layer.out.width + x + c) * layer.outputs();
        for (int v = 0; v < VECTORS; v++) {
            if constexpr (ROWS == 2) {
                const auto& top = sums[0];
                const auto& bottom = sums[1];
                write_cell(layer, to, cell, picks, o + v * LANES, top[2 * c][v], top[2 * c + 1][v], bottom[2 * c][v],
                           bottom[2 * c + 1][v]);
            } else {
                write_value(layer, to, cell, picks, o + v * LANES, sums[0][c][v], Ints{}, Vector{} + INFINITY);
            }
        }
    }
}

template <int CHANNELS, int KERNEL, int ROWS, int COLUMNS>
void write_outputs(const Convolution& layer, const float* image, const float* w, const float* bias, int y, int x,
                   Target to) {
    int o = 0;
    for (; o + 2 * LANES <= layer.outputs(); o += 2 * LANES) {
        write_block<CHANNELS, KERNEL, ROWS, COLUMNS, 2>(layer, image, w, bias, y, x, o, to);
    }
    if (o < layer.outputs()) write_block<CHANNELS, KERNEL, ROWS, COLUMNS, 1>(layer, image, w, bias, y, x, o, to);
}

// A whole image. The widest blocks that the registers hold, then smaller ones for what is left of a row.
template <int CHANNELS, int KERNEL, int ROWS> void convolve_rows(const Convolution& layer, const float* image, const float* w,
                                                     const float* bias, Target to) {
    constexpr int WIDEST = REGISTERS == 32 ? 2 : 1;  // in cells; without pooling, four times as many positions
    constexpr int SCALE = ROWS == 2 ? 2 : 4;
    for (int y = 0; y < layer.out.height; y++) {
        const int width = layer.out.width;
        int x = 0;
        constexpr int STEP = WIDEST * SCALE / ROWS;
        for (; x + STEP <= width; x += STEP) {
            write_outputs<CHANNELS, KERNEL, ROWS, WIDEST * SCALE>(layer, image, w, bias, y, x, to);
        }
        constexpr int HALF = ROWS == 2 ? 2 : 4;
        for (; WIDEST > 1 && x + HALF <= width; x += HALF) {
            write_outputs<CHANNELS, KERNEL, ROWS, HALF * ROWS>(layer, image, w, bias, y, x, to);
        }
        for (; x < width; x++) write_outputs<CHANNELS, KERNEL, ROWS, ROWS>(layer, image, w, bias, y, x, to);
    }
}

template <int CHANNELS, int KERNEL> void convolve_channels(const Convolution& layer, const float* image, const float* w,
                                               const float* bias, Target to) {
    if (layer.pool) return convolve_rows<CHANNELS, KERNEL, 2>(layer, image, w, bias, to);
    return convolve_rows<CHANNELS, KERNEL, 1>(layer, image, w, bias, to);
}

inline void convolve(const Convolution& layer, const float* image, const float* w, const float* bias, Target to) {
    if (layer.in.stride == 1 && layer.kernel == 5) return convolve_channels<1, 5>(layer, image, w, bias, to);
    if (layer.in.stride == 3 && layer.kernel == 5) return convolve_channels<3, 5>(layer, image, w, bias, to);
    return convolve_channels<0, 0>(layer, image, w, bias, to);
}

}  // namespace lidfl
