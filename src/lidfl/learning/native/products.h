// Matrix products C = A·B (or C += A·B) of small matrices, as the linear layers and Winograd's tiles need them.
//
// Rows of B and C are whole vectors. Each entry of C
// is summed in the same order whatever the other rows are, so that an image's result does not depend on its batch.
#pragma once

#include <algorithm>

#include "vectors.h"

namespace lidfl {

// A matrix whose rows lie `stride` floats apart or, if it is turned, its columns.
struct Matrix {
    const float* data;
    ptrdiff_t stride;
    bool turned = false;
};

constexpr int TILE_ROWS = 6;
constexpr int TILE_VECTORS = REGISTERS == 32 ? 4 : 2;
// Sums over more terms than this are cut in pieces, which keeps their rounding error small.
constexpr int LONGEST_SUM = 256;

template <bool TURNED, int ROWS, int VECTORS>
void multiply_tile(const float* a, ptrdiff_t a_stride, const float* b, ptrdiff_t b_row, float* c, ptrdiff_t c_row,
                   int terms, bool add) {
    Vector sums[ROWS][VECTORS] = {};
    const ptrdiff_t to_row = TURNED ? 1 : a_stride, to_term = TURNED ? a_stride : 1;
    for (int k = 0; k < terms; k++, b += b_row, a += to_term) {
        Vector right[VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) right[v] = load(b + v * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; v++) sums[r][v] += a[r * to_row] * right[v];
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) {
            float* to = c + r * c_row + v * LANES;
            store(to, add ? load(to) + sums[r][v] : sums[r][v]);
        }
    }
}

template <bool TURNED, int VECTORS>
auto tile_of(int rows) {
    switch (rows) {
        case 1: return multiply_tile<TURNED, 1, VECTORS>;
        case 2: return multiply_tile<TURNED, 2, VECTORS>;
        case 3: return multiply_tile<TURNED, 3, VECTORS>;
        case 4: return multiply_tile<TURNED, 4, VECTORS>;
        case 5: return multiply_tile<TURNED, 5, VECTORS>;
        default: return multiply_tile<TURNED, 6, VECTORS>;
    }
}

// All rows against some columns of B. Tiles are of equal height as far as possible: 25 rows are 5 × 5, not 4 × 6 + 1.
template <bool TURNED, int VECTORS>
void multiply_columns(int rows, Matrix a, const float* b, ptrdiff_t b_row, float* c, ptrdiff_t c_row, int terms,
                      bool add) {
    const int tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    for (int tile = 0, first = 0; tile < tiles; tile++) {
        const int height = (rows - first) / (tiles - tile);
        const float* from = a.data + first * (TURNED ? 1 : a.stride);
        tile_of<TURNED, VECTORS>(height)(from, a.stride, b, b_row, c + first * c_row, c_row, terms, add);
        first += height;
    }
}

template <bool TURNED>
void multiply_terms(int rows, int columns, int terms, Matrix a, const float* b, ptrdiff_t b_row, float* c,
                    ptrdiff_t c_row, bool add) {
    int j = 0;
    for (; j + TILE_VECTORS * LANES <= columns; j += TILE_VECTORS * LANES) {
        multiply_columns<TURNED, TILE_VECTORS>(rows, a, b + j, b_row, c + j, c_row, terms, add);
    }
    for (; j < columns; j += LANES) multiply_columns<TURNED, 1>(rows, a, b + j, b_row, c + j, c_row, terms, add);
}

inline void multiply(int rows, int columns, int terms, Matrix a, const float* b, ptrdiff_t b_row, float* c,
                     ptrdiff_t c_row, bool add) {
    for (int k = 0; k < terms; k += LONGEST_SUM) {
        const int some = std::min(LONGEST_SUM, terms - k);
        const Matrix part{a.data + k * (a.turned ? a.stride : 1), a.stride, a.turned};
        auto* work = a.turned ? multiply_terms<true> : multiply_terms<false>;
        work(rows, columns, some, part, b + k * b_row, b_row, c, c_row, add || k > 0);
    }
}

}  // namespace lidfl
