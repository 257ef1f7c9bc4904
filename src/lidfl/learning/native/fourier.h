// Convolution of 14×14 images with 5×5 kernels by Fourier's transform: 292 products for what takes 2,500.
//
// A product of transforms is a convolution on a ring. The ring's 14 positions hold the image as it is, and of its
// outputs the first 10 × 10, all that there are without a border, never reach across the end. With X and W the
// transforms of image and kernel, the correlation that a network calls convolution is Y = X · conj(W) / 14², summed over
// channels before the way back.
//
// All numbers are real, so that half of each transform mirrors the other: 4 real and 96 complex products are left, and
// a complex one takes three real ones (Gauss):
//
//   k₁ = (xᵣ + xᵢ)·wᵣ,  k₂ = xᵣ·(wᵢ − wᵣ),  k₃ = xᵢ·(wᵣ + wᵢ);   yᵣ = k₁ − k₃,  yᵢ = k₁ + k₂
//
// Each of the 292 is a matrix product (images × channels)·(channels × outputs). A line of 14 = 2 · 7 numbers is
// transformed without any twiddle factors (Good and Thomas): with s and d the sums and differences of what lies 7 apart,
// the even frequencies are the transform of s by 7, the odd ones that of d.
#pragma once

#include "direct.h"
#include "products.h"

namespace lidfl {

constexpr int FOURIER_KERNEL = 5;
constexpr int FOURIER_OUTPUTS = RING - FOURIER_KERNEL + 1;
constexpr int REAL_LINES = 4;              // frequencies whose product is real
constexpr int COMPLEX_LINES = 96;
constexpr int LINES = REAL_LINES + 3 * COMPLEX_LINES;
constexpr float COSINES[7] = {1.0f,         0.623489802f,  -0.222520934f, -0.900968868f,
                              -0.900968868f, -0.222520934f, 0.623489802f};
constexpr float SINES[7] = {0.0f, 0.781831482f, 0.974927912f, 0.433883739f, -0.433883739f, -0.974927912f, -0.781831482f};

// How far lines of so many numbers lie apart: not by a power of two, for which caches have few places.
constexpr size_t line_stride(size_t numbers) { return numbers + LANES; }

// Transformed images and products, (line, image, channel or output).
struct FourierScratch {
    Buffer<float> inputs, outputs;
};

// Half of a real line's transform; the first and the last are real.
template <int SIZE> struct Half {
    Vector re[SIZE], im[SIZE];
};

#define UNROLL _Pragma("GCC unroll 14")

// Seven real numbers.
inline void transform_seven(const Vector (&v)[7], Half<4>& to) {
    Vector sums[4], differences[4];
    UNROLL for (int j = 1; j < 4; j++) {
        sums[j] = v[j] + v[7 - j];
        differences[j] = v[7 - j] - v[j];
    }
    to.re[0] = (v[0] + sums[1]) + (sums[2] + sums[3]);
    to.im[0] = Vector{};
    UNROLL for (int k = 1; k < 4; k++) {
        to.re[k] = v[0] + COSINES[k] * sums[1] + COSINES[2 * k % 7] * sums[2] + COSINES[3 * k % 7] * sums[3];
        to.im[k] = SINES[k] * differences[1] + SINES[2 * k % 7] * differences[2] + SINES[3 * k % 7] * differences[3];
    }
}

// Seven times the real numbers whose transform this is.
inline void restore_seven(const Half<4>& from, Vector (&v)[7]) {
    v[0] = from.re[0] + 2.0f * ((from.re[1] + from.re[2]) + from.re[3]);
    UNROLL for (int j = 1; j < 4; j++) {
        Vector even = from.re[0], odd = {};
        UNROLL for (int k = 1; k < 4; k++) {
            even += 2 * COSINES[j * k % 7] * from.re[k];
            odd += 2 * SINES[j * k % 7] * from.im[k];
        }
        v[j] = even - odd;
        v[7 - j] = even + odd;
    }
}

// What lies 7 apart, added and subtracted.
inline void fold(const Vector (&x)[RING], Vector (&sums)[7], Vector (&differences)[7]) {
    UNROLL for (int b = 0; b < 7; b++) {
        const Vector one = x[2 * b], other = x[(2 * b + 7) % RING];
        sums[b] = one + other;
        differences[b] = one - other;
    }
}

// A real line: frequencies 0 to 7.
inline void transform_real(const Vector (&x)[RING], Half<8>& to) {
    Vector sums[7], differences[7];
    fold(x, sums, differences);
    Half<4> even, odd;
    transform_seven(sums, even);
    transform_seven(differences, odd);
    UNROLL for (int k = 0; k < 8; k++) {
        const Half<4>& half = k % 2 ? odd : even;
        const int place = k % 7, mirrored = 7 - place;
        to.re[k] = place < 4 ? half.re[place] : half.re[mirrored];
        to.im[k] = place < 4 ? half.im[place] : -half.im[mirrored];
    }
}

// Fourteen times the real line whose transform this is.
inline void restore_real(const Half<8>& from, Vector (&x)[RING]) {
    Half<4> even, odd;
    UNROLL for (int k = 0; k < 8; k++) {
        Half<4>& half = k % 2 ? odd : even;
        const int place = k % 7;
        half.re[place < 4 ? place : 7 - place] = from.re[k];
        half.im[place < 4 ? place : 7 - place] = place < 4 ? from.im[k] : -from.im[k];
    }
    Vector sums[7], differences[7];
    restore_seven(even, sums);
    restore_seven(odd, differences);
    UNROLL for (int b = 0; b < 7; b++) {
        x[2 * b] = sums[b] + differences[b];
        x[(2 * b + 7) % RING] = sums[b] - differences[b];
    }
}

// A complex line, in place: all 14 frequencies. With the parts exchanged, before and after, it is the way back.
inline void transform_complex(Vector (&re)[RING], Vector (&im)[RING]) {
    Vector re_folded[2][7], im_folded[2][7];
    fold(re, re_folded[0], re_folded[1]);
    fold(im, im_folded[0], im_folded[1]);
    UNROLL for (int parity = 0; parity < 2; parity++) {
        Half<4> x, y;
        transform_seven(re_folded[parity], x);
        transform_seven(im_folded[parity], y);
        UNROLL for (int place = 0; place < 7; place++) {
            const int k = place % 2 == parity ? place : place + 7, half = place < 4 ? place : 7 - place;
            re[k] = place < 4 ? x.re[half] - y.im[half] : x.re[half] + y.im[half];
            im[k] = place < 4 ? y.re[half] + x.im[half] : y.re[half] - x.im[half];
        }
    }
}

// Lines of a plane that is transformed along its rows: of each row frequencies 0 and 7, then the parts of 1 to 6.
struct Plane {
    Vector at[RING][RING];

    void set_row(int y, const Half<8>& half) {
        at[y][0] = half.re[0];
        at[y][1] = half.re[7];
        UNROLL for (int k = 1; k < 7; k++) {
            at[y][2 * k] = half.re[k];
            at[y][2 * k + 1] = half.im[k];
        }
    }

    Half<8> row(int y) const {
        Half<8> half;
        half.re[0] = at[y][0];
        half.re[7] = at[y][1];
        half.im[0] = half.im[7] = Vector{};
        UNROLL for (int k = 1; k < 7; k++) {
            half.re[k] = at[y][2 * k];
            half.im[k] = at[y][2 * k + 1];
        }
        return half;
    }
};

// Which line a complex product starts at: in the two real columns of a plane, and in its complex ones.
constexpr int line_in_real(int column, int k) { return REAL_LINES + 3 * (6 * column + k - 1); }
constexpr int line_in_complex(int column, int k) { return REAL_LINES + 3 * (12 + RING * column + k); }

// Where the lines of an image start, and how a complex number is laid down for the three products.
struct ImageLines {
    float* start;
    size_t stride;

    void put(int line, Vector value) const { store(start + line * stride, value); }
    void put(int line, Vector re, Vector im) const {
        put(line, re + im);
        put(line + 1, re);
        put(line + 2, im);
    }
};

// The same for weights, of which the product takes the conjugate.
struct KernelLines {
    float* start;
    size_t stride;

    void put(int line, Vector value) const { store(start + line * stride, value); }
    void put(int line, Vector re, Vector im) const {
        put(line, re);
        put(line + 1, -im - re);
        put(line + 2, re - im);
    }
};

// The columns of a plane, transformed, go to their lines.
template <class Lines> inline void transform_columns(const Plane& plane, const Lines& lines) {
    for (int column = 0; column < 2; column++) {
        Vector x[RING];
        UNROLL for (int y = 0; y < RING; y++) x[y] = plane.at[y][column];
        Half<8> half;
        transform_real(x, half);
        lines.put(2 * column, half.re[0]);
        lines.put(2 * column + 1, half.re[7]);
        UNROLL for (int k = 1; k < 7; k++) lines.put(line_in_real(column, k), half.re[k], half.im[k]);
    }
    for (int column = 0; column < 6; column++) {
        Vector re[RING], im[RING];
        UNROLL for (int y = 0; y < RING; y++) {
            re[y] = plane.at[y][2 * column + 2];
            im[y] = plane.at[y][2 * column + 3];
        }
        transform_complex(re, im);
        UNROLL for (int k = 0; k < RING; k++) lines.put(line_in_complex(column, k), re[k], im[k]);
    }
}

// Weights (row, column, channel, output) to (line, channel, output), for some channels.
inline void fourier_kernels(const Convolution& layer, const float* w, float* to, int first, int last) {
    constexpr float SCALE = 1.0f / (RING * RING);
    const int channels = layer.in.stride, outputs = layer.outputs();
    const size_t stride = line_stride(size_t(channels) * outputs);
    for (int c = first; c < last; c++) {
        for (int o = 0; o < outputs; o += LANES) {
            Plane plane = {};
            for (int i = 0; i < FOURIER_KERNEL; i++) {
                Vector x[RING] = {};
                for (int j = 0; j < FOURIER_KERNEL; j++) {
                    x[j] = SCALE * load(w + ((i * FOURIER_KERNEL + j) * channels + c) * outputs + o);
                }
                Half<8> half;
                transform_real(x, half);
                plane.set_row(i, half);
            }
            transform_columns(plane, KernelLines{to + c * outputs + o, stride});
        }
    }
}

// One image, to its place in (line, image, channel).
inline void read_fourier(const Convolution& layer, const float* image, float* to, size_t stride) {
    const int channels = layer.in.stride, row = layer.in.row();
    for (int c = 0; c < channels; c += LANES) {
        Plane plane;
        for (int y = 0; y < RING; y++) {
            Vector x[RING];
            UNROLL for (int j = 0; j < RING; j++) x[j] = load(image + y * row + j * channels + c);
            Half<8> half;
            transform_real(x, half);
            plane.set_row(y, half);
        }
        transform_columns(plane, ImageLines{to + c, stride});
    }
}

// All products of some images: (line, image, channel)·(line, channel, output).
inline void multiply_lines(const Convolution& layer, int images, const float* kernels, FourierScratch& scratch) {
    const int channels = layer.in.stride, outputs = layer.outputs();
    const size_t from = line_stride(size_t(images) * channels), by = line_stride(size_t(channels) * outputs);
    const size_t to = line_stride(size_t(images) * outputs);
    for (int line = 0; line < LINES; line++) {
        const Matrix left{scratch.inputs.data() + line * from, channels};
        multiply(images, outputs, channels, left, kernels + line * by, outputs, scratch.outputs.data() + line * to,
                 outputs, false);
    }
}

// A plane whose columns are restored, from one vector of outputs of (line, image, output).
inline void restore_columns(const float* from, size_t stride, Plane& plane) {
    const auto value = [&](int line) { return load(from + line * stride); };
    for (int column = 0; column < 2; column++) {
        Half<8> half;
        half.re[0] = value(2 * column);
        half.re[7] = value(2 * column + 1);
        half.im[0] = half.im[7] = Vector{};
        UNROLL for (int k = 1; k < 7; k++) {
            const int line = line_in_real(column, k);
            half.re[k] = value(line) - value(line + 2);
            half.im[k] = value(line) + value(line + 1);
        }
        Vector x[RING];
        restore_real(half, x);
        UNROLL for (int y = 0; y < FOURIER_OUTPUTS; y++) plane.at[y][column] = x[y];
    }
    for (int column = 0; column < 6; column++) {
        Vector re[RING], im[RING];
        UNROLL for (int k = 0; k < RING; k++) {
            const int line = line_in_complex(column, k);
            re[k] = value(line) - value(line + 2);
            im[k] = value(line) + value(line + 1);
        }
        transform_complex(im, re);
        UNROLL for (int y = 0; y < FOURIER_OUTPUTS; y++) {
            plane.at[y][2 * column + 2] = re[y];
            plane.at[y][2 * column + 3] = im[y];
        }
    }
}

// One image's cells, from its place in (line, image, output).
inline void write_fourier(const Convolution& layer, const float* bias, const float* from, size_t stride, Target to) {
    const int outputs = layer.outputs();
    for (int o = 0; o < outputs; o += LANES) {
        Plane plane;
        restore_columns(from + o, stride, plane);
        for (int y = 0; y < layer.out.height; y++) {
            Vector top[RING], bottom[RING];
            restore_real(plane.row(2 * y), top);
            restore_real(plane.row(2 * y + 1), bottom);
            const Vector b = load(bias + o);
            UNROLL for (int x = 0; x < FOURIER_OUTPUTS / 2; x++) {
                write_cell(layer, to, layer.out.at(y, x), (y * layer.out.width + x) * outputs, o, top[2 * x] + b,
                           top[2 * x + 1] + b, bottom[2 * x] + b, bottom[2 * x + 1] + b);
            }
        }
    }
}

}  // namespace lidfl
