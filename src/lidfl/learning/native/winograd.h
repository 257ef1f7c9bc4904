// Convolution with 5×5 kernels and 2×2 pooling by Winograd's F(2×2, 5×5): 36 products for what takes 100.
//
// A cell of four outputs comes from a 6×6 tile d of the input: Y = Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A, summed over channels
// before the outer transform. The matrices are those of Toom and Cook for the points 0, 1, −1, 1/2, −2, ∞, which round
// least of all that were tried (6·10⁻⁷ relative, direct summation 3 to 4·10⁻⁷), rows scaled to small integers in Bᵀ:
//
//        ⎡2 −3 −4  3  2  0⎤      ⎡ 1/2    0    0    0    0  ⎤       ⎡1  1  1   1   1  0⎤
//        ⎢0 −2  1  5  2  0⎥      ⎢ 1/6   1/6  1/6  1/6  1/6 ⎥  Aᵀ = ⎣0  1 −1  1/2 −2  1⎦
//   Bᵀ = ⎢0 −2  5 −1 −2  0⎥  G = ⎢ 1/6  −1/6  1/6 −1/6  1/6 ⎥
//        ⎢0  2  1 −2 −1  0⎥      ⎢16/15  8/15 4/15 2/15 1/15⎥
//        ⎢0  1 −2 −1  2  0⎥      ⎢ 1/30 −2/30 4/30 −8/30 16/30⎥
//        ⎣0  2 −3 −4  3  2⎦      ⎣  0     0    0    0   1/2 ⎦
//
// A tile's outputs are exactly a pooling cell, so that transform, bias, pooling and ReLU happen in registers.
#pragma once

#include "direct.h"
#include "products.h"

namespace lidfl {

constexpr int SIDE = 6, POINTS = SIDE * SIDE;
constexpr int MOST_TILES = 30;  // transformed at a time: they stay in the second-level cache
struct WinogradScratch {
    Buffer<float> inputs, outputs;  // transformed tiles: (point, tile, channel)
};

inline void transform_kernel_line(const Vector (&g)[5], Vector (&u)[SIDE]) {
    const Vector even = g[0] + g[2] + g[4], odd = g[1] + g[3];
    u[0] = 0.5f * g[0];
    u[1] = (even + odd) * (1.0f / 6);
    u[2] = (even - odd) * (1.0f / 6);
    u[3] = (g[4] + 2.0f * (g[3] + 2.0f * (g[2] + 2.0f * (g[1] + 2.0f * g[0])))) * (1.0f / 15);
    u[4] = (g[0] - 2.0f * (g[1] - 2.0f * (g[2] - 2.0f * (g[3] - 2.0f * g[4])))) * (1.0f / 30);
    u[5] = 0.5f * g[4];
}

// Bᵀd of one line, with what its rows have in common computed once.
inline void transform_input_line(const Vector (&d)[SIDE], Vector (&t)[SIDE]) {
    const Vector e = d[1] - d[3], f = d[2] - d[4];
    t[0] = 2.0f * (d[0] + d[4] - 2.0f * d[2]) - 3.0f * e;
    t[1] = 3.0f * (d[2] + d[3]) - 2.0f * (e + f);
    t[2] = 3.0f * (d[2] - d[3]) - 2.0f * (e - f);
    t[3] = 2.0f * e + f;
    t[4] = e - 2.0f * f;
    t[5] = 2.0f * (d[1] + d[5] - 2.0f * d[3]) - 3.0f * f;
}

inline void transform_output_line(const Vector (&m)[SIDE], Vector& first, Vector& second) {
    first = (m[0] + m[3]) + (m[1] + m[2]) + m[4];
    second = (m[1] - m[2]) + 0.5f * m[3] + (m[5] - 2.0f * m[4]);
}

// Weights (row, column, channel, output) to (point, channel, output), for some channels.
inline void transform_kernels(const Convolution& layer, const float* w, float* u, int first, int last) {
    const int channels = layer.in.stride, outputs = layer.outputs();
    for (int c = first; c < last; c++) {
        for (int o = 0; o < outputs; o += LANES) {
            Vector lines[5][SIDE];
            for (int j = 0; j < 5; j++) {
                Vector g[5];
                for (int i = 0; i < 5; i++) g[i] = load(w + ((i * 5 + j) * channels + c) * outputs + o);
                transform_kernel_line(g, lines[j]);
            }
            for (int a = 0; a < SIDE; a++) {
                Vector g[5], points[SIDE];
                for (int j = 0; j < 5; j++) g[j] = lines[j][a];
                transform_kernel_line(g, points);
                for (int b = 0; b < SIDE; b++) store(u + ((a * SIDE + b) * channels + c) * outputs + o, points[b]);
            }
        }
    }
}

// Bᵀ d B of one vector of channels; points lie `stride` floats apart.
inline void transform_input(const float* image, int row, int column, float* to, int stride) {
    Vector lines[SIDE][SIDE];
#pragma GCC unroll 6
    for (int j = 0; j < SIDE; j++) {
        Vector d[SIDE], t[SIDE];
#pragma GCC unroll 6
        for (int i = 0; i < SIDE; i++) d[i] = load(image + i * row + j * column);
        transform_input_line(d, t);
#pragma GCC unroll 6
        for (int a = 0; a < SIDE; a++) lines[a][j] = t[a];
    }
#pragma GCC unroll 6
    for (int a = 0; a < SIDE; a++) {
        Vector t[SIDE];
        transform_input_line(lines[a], t);
#pragma GCC unroll 6
        for (int b = 0; b < SIDE; b++) store(to + (a * SIDE + b) * stride, t[b]);
    }
}

// Aᵀ m A of one vector of outputs.
inline void transform_output(const float* m, int stride, Vector (&cell)[4]) {
    Vector lines[2][SIDE];
#pragma GCC unroll 6
    for (int b = 0; b < SIDE; b++) {
        Vector column[SIDE];
#pragma GCC unroll 6
        for (int a = 0; a < SIDE; a++) column[a] = load(m + (a * SIDE + b) * stride);
        transform_output_line(column, lines[0][b], lines[1][b]);
    }
    transform_output_line(lines[0], cell[0], cell[1]);
    transform_output_line(lines[1], cell[2], cell[3]);
}

inline void read_tiles(const Convolution& layer, const float* image, int first, int count, float* to) {
    const int channels = layer.in.stride;
    for (int tile = 0; tile < count; tile++) {
        const int y = (first + tile) / layer.out.width, x = (first + tile) % layer.out.width;
        const float* from = image + 2 * y * layer.in.row() + 2 * x * channels;
        for (int c = 0; c < channels; c += LANES) {
            transform_input(from + c, layer.in.row(), channels, to + tile * channels + c, count * channels);
        }
    }
}

inline void write_tiles(const Convolution& layer, const float* bias, const float* from, int first, int count,
                        Target to) {
    const int outputs = layer.outputs();
    for (int tile = 0; tile < count; tile++) {
        const int index = first + tile;
        const int value_at = layer.out.at(index / layer.out.width, index % layer.out.width);
        for (int o = 0; o < outputs; o += LANES) {
            Vector cell[4];
            transform_output(from + tile * outputs + o, count * outputs, cell);
            for (Vector& value : cell) value += load(bias + o);
            write_cell(layer, to, value_at, index * outputs, o, cell[0], cell[1], cell[2], cell[3]);
        }
    }
}

// A whole image, from weights (point, channel, output).
inline void convolve_winograd(const Convolution& layer, const float* image, const float* points, const float* bias,
                              WinogradScratch& scratch, Target to) {
    const int channels = layer.in.stride, outputs = layer.outputs(), cells = layer.cells();
    const int parts = (cells + MOST_TILES - 1) / MOST_TILES;
    for (int part = 0; part < parts; part++) {
        const int first = cells * part / parts, count = cells * (part + 1) / parts - first;
        float* tiles = scratch.inputs.data();
        float* products = scratch.outputs.data();
        read_tiles(layer, image, first, count, tiles);
        for (int point = 0; point < POINTS; point++) {
            const Matrix left{tiles + point * count * channels, channels};
            multiply(count, outputs, channels, left, points + point * channels * outputs, outputs,
                     products + point * count * outputs, outputs, false);
        }
        write_tiles(layer, bias, products, first, count, to);
    }
}

}  // namespace lidfl
