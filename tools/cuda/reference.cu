// Hand-written kernels, as an experienced CUDA programmer would write them: what smelt's are compared with.

#include <cuda_runtime.h>
#include <math.h>

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int mask = 16; mask; mask /= 2) value += __shfl_xor_sync(0xffffffff, value, mask);
    return value;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
    for (int mask = 16; mask; mask /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, mask));
    return value;
}

// relu(x * y + z) / 2, four elements a thread.
extern "C" __global__ void __launch_bounds__(256) pointwise(float4* out, const float4* x, const float4* y, const float4* z, int n) {
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
        float4 a = x[i], b = y[i], c = z[i], r;
        r.x = fmaxf(a.x * b.x + c.x, 0.0f) / 2.0f;
        r.y = fmaxf(a.y * b.y + c.y, 0.0f) / 2.0f;
        r.z = fmaxf(a.z * b.z + c.z, 0.0f) / 2.0f;
        r.w = fmaxf(a.w * b.w + c.w, 0.0f) / 2.0f;
        out[i] = r;
    }
}

// Rows of 1024, a warp each, kept in registers.
extern "C" __global__ void __launch_bounds__(128) softmax(float4* out, const float4* x, int rows) {
    int lane = threadIdx.x % 32;
    for (int row = (blockIdx.x * 128 + threadIdx.x) / 32; row < rows; row += gridDim.x * 4) {
        float4 v[8];
        float largest = -INFINITY, sum = 0.0f;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            v[k] = x[row * 256 + k * 32 + lane];
            largest = fmaxf(largest, fmaxf(fmaxf(v[k].x, v[k].y), fmaxf(v[k].z, v[k].w)));
        }
        largest = warp_max(largest);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            v[k].x = expf(v[k].x - largest);
            v[k].y = expf(v[k].y - largest);
            v[k].z = expf(v[k].z - largest);
            v[k].w = expf(v[k].w - largest);
            sum += (v[k].x + v[k].y) + (v[k].z + v[k].w);
        }
        sum = warp_sum(sum);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            float4 r;
            r.x = v[k].x / sum;
            r.y = v[k].y / sum;
            r.z = v[k].z / sum;
            r.w = v[k].w / sum;
            out[row * 256 + k * 32 + lane] = r;
        }
    }
}

__device__ __forceinline__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f)); }

// gelu(layer_norm(x) * weight + bias), rows of 1024, a warp each.
extern "C" __global__ void __launch_bounds__(128) layer_norm_gelu(float4* out, const float4* x, const float4* weight, const float4* bias, int rows) {
    int lane = threadIdx.x % 32;
    for (int row = (blockIdx.x * 128 + threadIdx.x) / 32; row < rows; row += gridDim.x * 4) {
        float4 v[8];
        float sum = 0.0f, squares = 0.0f;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            v[k] = x[row * 256 + k * 32 + lane];
            sum += (v[k].x + v[k].y) + (v[k].z + v[k].w);
        }
        float mean = warp_sum(sum) / 1024.0f;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            v[k].x -= mean;
            v[k].y -= mean;
            v[k].z -= mean;
            v[k].w -= mean;
            squares += (v[k].x * v[k].x + v[k].y * v[k].y) + (v[k].z * v[k].z + v[k].w * v[k].w);
        }
        float scale = rsqrtf(warp_sum(squares) / 1024.0f + 1e-5f);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            float4 w = weight[k * 32 + lane], b = bias[k * 32 + lane], r;
            r.x = gelu(v[k].x * scale * w.x + b.x);
            r.y = gelu(v[k].y * scale * w.y + b.y);
            r.z = gelu(v[k].z * scale * w.z + b.z);
            r.w = gelu(v[k].w * scale * w.w + b.w);
            out[row * 256 + k * 32 + lane] = r;
        }
    }
}

// Sums of 256 rows of each column.
extern "C" __global__ void __launch_bounds__(256) column_sum(float* out, const float* x, int columns) {
    for (int i = blockIdx.x * 256 + threadIdx.x; i < columns; i += gridDim.x * 256) {
        float sum = 0.0f;
        for (int k = 0; k < 256; k++) sum += x[k * 1024 + (i / 1024) * 262144 + i % 1024];
        out[i] = sum;
    }
}

// x.T + y through a tile of 32 x 32.
extern "C" __global__ void __launch_bounds__(128) transpose_add(float* out, const float* x, const float* y) {
    __shared__ float tile[32][33];
    for (int block = blockIdx.x; block < 4096; block += gridDim.x) {
        int down = block / 64 * 32, across = block % 64 * 32;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            int row = k * 4 + threadIdx.x / 32, column = threadIdx.x % 32;
            tile[column][row] = x[(across + row) * 2048 + down + column];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 8; k++) {
            int row = k * 4 + threadIdx.x / 32, column = threadIdx.x % 32;
            int place = (down + row) * 2048 + across + column;
            out[place] = tile[row][column] + y[place];
        }
        __syncthreads();
    }
}

// log(sum(exp(x))) - x[label], rows of 32000, a block each.
extern "C" __global__ void __launch_bounds__(512) cross_entropy(float* out, const float4* x, const long long* labels) {
    __shared__ float parts[16];
    for (int row = blockIdx.x; row < 512; row += gridDim.x) {
        float largest = -INFINITY, sum = 0.0f;
        for (int j = threadIdx.x; j < 8000; j += 512) {
            float4 v = x[row * 8000 + j];
            largest = fmaxf(largest, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
        }
        largest = warp_max(largest);
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = largest;
        __syncthreads();
        largest = warp_max(parts[threadIdx.x % 16]);
        __syncthreads();
        for (int j = threadIdx.x; j < 8000; j += 512) {
            float4 v = x[row * 8000 + j];
            sum += (expf(v.x - largest) + expf(v.y - largest)) + (expf(v.z - largest) + expf(v.w - largest));
        }
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
        __syncthreads();
        sum = warp_sum(threadIdx.x % 32 < 16 ? parts[threadIdx.x % 32] : 0.0f);
        __syncthreads();
        if (threadIdx.x == 0) out[row] = logf(sum) + largest - ((const float*)x)[row * 32000 + labels[row]];
    }
}

// One step of Adam, four parameters a thread.
extern "C" __global__ void __launch_bounds__(256) adam(float4* p_out, float4* m_out, float4* v_out, const float4* p, const float4* g, const float4* m, const float4* v, int n) {
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
        float4 q = p[i], d = g[i], a = m[i], b = v[i];
#define STEP(c)                                   \
    a.c = 0.9f * a.c + 0.1f * d.c;                \
    b.c = 0.999f * b.c + 0.001f * (d.c * d.c);    \
    q.c = q.c - 0.001f * (a.c / (sqrtf(b.c) + 1e-8f));
        STEP(x) STEP(y) STEP(z) STEP(w)
        p_out[i] = q;
        m_out[i] = a;
        v_out[i] = b;
    }
}

// 1024 x 1024 x 1024, tiles of 64 x 64, a square of 4 x 4 for each thread.
extern "C" __global__ void __launch_bounds__(256) matmul(float* out, const float* x, const float* y) {
    __shared__ float lefts[16][64];
    __shared__ float rights[16][64];
    int down = threadIdx.x / 16 * 4, across = threadIdx.x % 16 * 4;
    int row = blockIdx.x / 16 * 64, column = blockIdx.x % 16 * 64;
    float c[4][4] = {};
    for (int start = 0; start < 1024; start += 16) {
        int line = threadIdx.x / 4, k = threadIdx.x % 4 * 4;
        float4 v = *(const float4*)&x[(row + line) * 1024 + start + k];
        lefts[k][line] = v.x;
        lefts[k + 1][line] = v.y;
        lefts[k + 2][line] = v.z;
        lefts[k + 3][line] = v.w;
        *(float4*)&rights[threadIdx.x / 16][across] = *(const float4*)&y[(start + threadIdx.x / 16) * 1024 + column + across];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 16; k++) {
            float4 a = *(const float4*)&lefts[k][down], b = *(const float4*)&rights[k][across];
            float left[4] = {a.x, a.y, a.z, a.w}, right[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int r = 0; r < 4; r++)
#pragma unroll
                for (int s = 0; s < 4; s++) c[r][s] += left[r] * right[s];
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 4; r++)
        *(float4*)&out[(row + down + r) * 1024 + column + across] = make_float4(c[r][0], c[r][1], c[r][2], c[r][3]);
}
