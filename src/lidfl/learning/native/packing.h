// Between torch's order of the parameters and the packed one.
#pragma once

#include "layers.h"

namespace lidfl {

// Calls visit(packed index, torch's index) for every parameter of a convolution; torch has (output, channel, row, column).
template <class Visit> void each_parameter(const Convolution& layer, Visit visit) {
    const int kernel = layer.kernel, channels = layer.in.channels;
    int original = layer.original;
    for (int o = 0; o < layer.out.channels; o++)
        for (int c = 0; c < channels; c++)
            for (int i = 0; i < kernel; i++)
                for (int j = 0; j < kernel; j++, original++) {
                    const int place = o * layer.weight_size() + i * layer.row_stride + j * layer.in.stride + c;
                    visit(layer.weights + place, original);
                }
    for (int o = 0; o < layer.out.channels; o++, original++) visit(layer.biases + o, original);
}

// The same for a linear layer, whose inputs are `rows × columns` positions of `channels` channels in memory of
// `stride`; torch has (output, channel, position).
template <class Visit>
void each_parameter(const Linear& layer, int positions, int channels, int stride, Visit visit) {
    int original = layer.original;
    for (int o = 0; o < layer.outputs; o++)
        for (int c = 0; c < channels; c++)
            for (int p = 0; p < positions; p++, original++) {
                visit(layer.weights + (p * stride + c) * layer.stride + o, original);
            }
    for (int o = 0; o < layer.outputs; o++, original++) visit(layer.biases + o, original);
}

template <class Visit> void each_parameter(const Layers& layers, Visit visit) {
    for (const Convolution& layer : layers.convolutions) each_parameter(layer, visit);
    const Shape& features = layers.features();
    int positions = features.height * features.width, channels = features.channels, stride = features.stride;
    for (const Linear& layer : layers.linears) {
        each_parameter(layer, positions, channels, stride, visit);
        positions = 1;
        channels = layer.outputs;
        stride = layer.stride;
    }
}

}  // namespace lidfl
