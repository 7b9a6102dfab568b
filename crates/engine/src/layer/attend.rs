//! The part of self-attention without parameters: softmax(QKᵀ/√k)·V for each head, between the pixels of an
//! image or the tokens of a sequence. Queries, keys and values come from a 1 × 1 convolution before it, and
//! another one follows it.

use dpsgd_kernels::dots::Dots;
use dpsgd_kernels::{Level, SLACK, elementwise};

/// Attention between the pixels of a tensor. A pixel of the input holds its query, key and value, one after
/// the other; neither tensor has a border.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attend {
    pub input: usize,
    pub output: usize,
    /// Pixels.
    pub tokens: usize,
    /// The channels of the output: those of a query, a key and a value.
    pub channels: usize,
    pub heads: usize,
}

impl Attend {
    /// The shares that one sample leaves for backpropagation.
    pub fn numbers(&self) -> usize {
        self.heads * self.tokens * self.tokens
    }

    fn width(&self) -> usize {
        self.channels / self.heads
    }

    /// Where the query (0), key (1) or value (2) of a token begins for a head.
    fn at(&self, which: usize, head: usize, token: usize) -> usize {
        (3 * token + which) * self.channels + head * self.width()
    }

    /// The numbers of a token of one head, and zeros up to a whole vector.
    fn padded(&self) -> usize {
        self.width().next_multiple_of(SLACK)
    }

    /// All products of a token of `a` with a token of `b` for one head; `room` holds [`padded`](Self::padded)
    /// numbers for each token.
    fn products(
        &self,
        level: Level,
        [(a, a_stride), (b, b_stride)]: [(&[f32], usize); 2],
        out: &mut [f32],
        room: &mut [f32],
    ) {
        let (width, padded) = (self.width(), self.padded());
        for (row, a) in room.chunks_exact_mut(padded).zip(a.chunks(a_stride)) {
            let (numbers, zeros) = row.split_at_mut(width);
            numbers.copy_from_slice(&a[..width]);
            zeros.fill(0.0);
        }
        let (rows, k) = (self.tokens, width);
        let dots = Dots { a: room, a_stride: padded, a_rows: rows, b, b_stride, b_rows: rows, k };
        dots.store(level, out, rows);
    }

    /// `shares` receives, for every head and query, the share that each value has in the result; `room` is
    /// scratch.
    pub fn forward(&self, level: Level, x: &[f32], y: &mut [f32], shares: &mut [f32], room: &mut Vec<f32>) {
        room.resize(self.tokens * self.padded(), 0.0);
        let (tokens, width) = (self.tokens, self.width());
        let scale = 1.0 / (width as f32).sqrt();
        y[..tokens * self.channels].fill(0.0);
        for (head, shares) in shares.chunks_exact_mut(tokens * tokens).enumerate() {
            let operands = [0, 1].map(|which| (&x[self.at(which, head, 0)..], 3 * self.channels));
            self.products(level, operands, shares, room);
            for (query, shares) in shares.chunks_exact_mut(tokens).enumerate() {
                let largest = shares.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let mut sum = 0.0;
                for share in shares.iter_mut() {
                    *share = ((*share - largest) * scale).exp();
                    sum += *share;
                }
                let y = &mut y[query * self.channels + head * width..][..width];
                for (token, share) in shares.iter_mut().enumerate() {
                    *share /= sum;
                    elementwise::add_scaled(level, *share, &x[self.at(2, head, token)..][..width], y);
                }
            }
        }
    }

    /// Overwrites `dx`; `room` is scratch.
    pub fn backward(
        &self,
        level: Level,
        (x, shares): (&[f32], &[f32]),
        dy: &[f32],
        dx: &mut [f32],
        room: &mut Vec<f32>,
    ) {
        let (tokens, width) = (self.tokens, self.width());
        let scale = 1.0 / (width as f32).sqrt();
        dx[..3 * tokens * self.channels].fill(0.0);
        room.resize(tokens * (tokens + self.padded()), 0.0);
        let (products, room) = room.split_at_mut(tokens * tokens);
        for (head, shares) in shares.chunks_exact(tokens * tokens).enumerate() {
            let operands =
                [(&dy[head * width..], self.channels), (&x[self.at(2, head, 0)..], 3 * self.channels)];
            self.products(level, operands, products, room);
            for (query, (shares, d)) in
                shares.chunks_exact(tokens).zip(products.chunks_exact_mut(tokens)).enumerate()
            {
                let dy = &dy[query * self.channels + head * width..][..width];
                let mean: f32 = shares.iter().zip(&*d).map(|(share, d)| share * d).sum();
                for (token, (share, d)) in shares.iter().zip(d).enumerate() {
                    *d = scale * share * (*d - mean);
                    let place = |which, token| {
                        let at = self.at(which, head, token);
                        at..at + width
                    };
                    elementwise::add_scaled(level, *share, dy, &mut dx[place(2, token)]);
                    elementwise::add_scaled(level, *d, &x[place(1, token)], &mut dx[place(0, query)]);
                    elementwise::add_scaled(level, *d, &x[place(0, query)], &mut dx[place(1, token)]);
                }
            }
        }
    }
}
