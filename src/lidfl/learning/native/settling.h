// Cells whose maximum rounding may have decided are settled in double.
//
// Rounding matters little in the values but much in the choice of a maximum: another choice sends the gradient
// elsewhere, which changes it by 10⁻⁴ to 10⁻³, and some steps of training later by 10⁻¹. So where the two largest values
// of a cell lie closer together than rounding can tell, or the largest lies that close to ReLU's 0, the cell is computed
// anew. That is one cell in 10⁵, and costs next to nothing.
#pragma once

#include "layers.h"

namespace lidfl {

// Which of a cell's four positions is its maximum, the first of equals as torch has it; DEAD where ReLU lets nothing
// through, so that no gradient comes back either.
constexpr int DEAD = 4;
// Values closer than this, relative to ‖image‖·‖weights of the output‖, are too close: several times the standard
// error of the difference.
constexpr float UNSURE = 1e-7f;
// Why a cell is unsure.
constexpr int CLOSE_TO_EACH_OTHER = 1, CLOSE_TO_ZERO = 2;

// Where the outputs of one image go. Nothing but the values is written if nobody asks for gradients: picks is null.
struct Target {
    float* values;
    uint8_t* picks = nullptr;
    uint8_t* unsure = nullptr;
    const float* tolerances = nullptr;  // of each output
};

inline float norm(const float* values, int size) {
    Vector sums[4] = {};
    int i = 0;
    for (; i + 4 * LANES <= size; i += 4 * LANES)
        for (int v = 0; v < 4; v++) sums[v] += load(values + i + v * LANES) * load(values + i + v * LANES);
    float total = sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; i < size; i++) total += values[i] * values[i];
    return std::sqrt(total);
}

// The norm of one output's weights.
inline float weight_norm(const Convolution& layer, const float* weights) {
    float squares = 0;
    for (int i = 0; i < layer.kernel; i++) {
        const float row = norm(weights + i * layer.row_stride, layer.run);
        squares += row * row;
    }
    return std::sqrt(squares);
}

inline void write_tolerances(const Convolution& layer, const float* image, const float* norms, float* to) {
    const float scale = UNSURE * norm(image, layer.in.size());
    for (int o = 0; o < layer.outputs(); o++) to[o] = scale * norms[o];
}

// The second largest of a cell's four values.
inline Vector cell_second(Vector a, Vector b, Vector c, Vector d) {
    const Vector low = smaller(larger(a, b), larger(c, d)), rest = larger(smaller(a, b), smaller(c, d));
    return larger(low, rest);
}

// Why the maximum of each cell is unsure, or 0. Which of several is the largest does not matter where ReLU drops it.
inline Ints is_unsure(const Convolution& layer, Vector best, Vector gap, Vector tolerance) {
    const Ints tie = (gap < tolerance) & CLOSE_TO_EACH_OTHER;
    if (!layer.relu) return tie;
    return (best > -tolerance) & (tie | ((best < tolerance) & CLOSE_TO_ZERO));
}

// The value of an output at a position, summed in double.
inline double exact_value(const Convolution& layer, const float* at, const float* weights, float bias) {
    double sum = bias;
    for (int i = 0; i < layer.kernel; i++) {
        const float* x = at + i * layer.in.row();
        const float* w = weights + i * layer.row_stride;
        double parts[8] = {};
        int t = 0;
        for (; t + 8 <= layer.run; t += 8)
            for (int lane = 0; lane < 8; lane++) parts[lane] += double(x[t + lane]) * w[t + lane];
        for (; t < layer.run; t++) parts[0] += double(x[t]) * w[t];
        for (const double part : parts) sum += part;
    }
    return sum;
}

// Whether a cell sees the same pixel everywhere: then its four values are equal, and the first is taken.
inline bool is_flat(const Convolution& layer, const float* patch) {
    const int side = layer.kernel + 1, stride = layer.in.stride;
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++) {
            const float* pixel = patch + i * layer.in.row() + j * stride;
            if (std::memcmp(patch, pixel, stride * sizeof(float)) != 0) return false;
        }
    return true;
}

// What a cell holds, from its exact values at the first so many positions.
inline void settle(const Convolution& layer, const float* patch, int positions, const float* weights, float bias,
                   float& value, uint8_t& pick) {
    double best = 0;
    for (int k = 0; k < positions; k++) {
        const float* at = patch + (k / 2) * layer.in.row() + (k % 2) * layer.in.stride;
        const double sum = exact_value(layer, at, weights, bias);
        if (k == 0 || sum > best) {
            best = sum;
            pick = static_cast<uint8_t>(k);
        }
    }
    if (layer.relu && best <= 0) {
        best = 0;
        pick = DEAD;
    }
    value = static_cast<float>(best);
}

// All unsure outputs of one cell.
inline void settle_cell(const Convolution& layer, const float* image, const float* weights, const float* bias, int cell,
                        Target to) {
    const int scale = layer.pool ? 2 : 1, y = cell / layer.out.width, x = cell % layer.out.width;
    const float* patch = image + scale * (y * layer.in.row() + x * layer.in.stride);
    const bool one = !layer.pool || is_flat(layer, patch);
    for (int o = 0; o < layer.out.channels; o++) {
        const int at = cell * layer.outputs() + o, why = to.unsure[at];
        if (why == 0) continue;
        if (one && why == CLOSE_TO_EACH_OTHER) {
            to.picks[at] = to.picks[at] == DEAD ? DEAD : 0;
        } else {
            settle(layer, patch, one ? 1 : 4, weights + o * layer.weight_size(), bias[o],
                   to.values[layer.out.at(y, x) + o], to.picks[at]);
        }
    }
}

inline void settle_image(const Convolution& layer, const float* image, const float* weights, const float* bias,
                         Target to) {
    const int outputs = layer.outputs();
    for (int cell = 0; cell < layer.cells(); cell++) {
        uint32_t any = 0;
        for (int at = cell * outputs; at < (cell + 1) * outputs; at += 4) {
            uint32_t four;
            std::memcpy(&four, to.unsure + at, 4);
            any |= four;
        }
        if (any != 0) settle_cell(layer, image, weights, bias, cell, to);
    }
}

}  // namespace lidfl
