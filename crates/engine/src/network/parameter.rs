//! Where the parameters of a network are, what they start as, and how PyTorch arranges them.

/// A layer's weights or biases: where they are, and how PyTorch names and arranges them.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The name in a state dictionary.
    pub name: String,
    /// Where they begin in the flat vector.
    pub offset: usize,
    /// PyTorch's shape.
    pub shape: Vec<usize>,
    /// The initial values PyTorch draws: uniform within ±1/√(fan-in) for convolutions and linear layers, 1
    /// and 0 for the weights and biases of normalisation layers.
    pub start: Start,
    /// How the flat vector arranges them.
    pub(super) order: Order,
}

/// The initial value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// Uniform between plus and minus this.
    Uniform(f32),
    /// This value.
    Constant(f32),
}

/// From PyTorch's order to ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The same.
    Plain,
    /// \[out\]\[in\]\[y\]\[x\] there, \[y\]\[x\]\[in\]\[out\] here.
    Kernel,
    /// \[out\]\[channel, pixel\] there, \[pixel, channel\]\[out\] here: the input is a flattened image.
    Flattened { pixels: usize, channels: usize },
    /// \[channel, pixel\] there, \[pixel, channel\] here.
    Image { pixels: usize, channels: usize },
}

impl Parameter {
    /// The number of entries.
    pub fn numbers(&self) -> usize {
        self.shape.iter().product()
    }

    /// The index in the flat vector of PyTorch's entry `i`.
    pub fn place(&self, i: usize) -> usize {
        let within = match self.order {
            Order::Plain => i,
            Order::Kernel => {
                let [out, input, height, width] = [0, 1, 2, 3].map(|axis| self.shape[axis]);
                let (x, i) = (i % width, i / width);
                let (y, i) = (i % height, i / height);
                let (c, o) = (i % input, i / input);
                ((y * width + x) * input + c) * out + o
            }
            Order::Flattened { pixels, channels } => {
                let (p, i) = (i % pixels, i / pixels);
                let (c, o) = (i % channels, i / channels);
                (p * channels + c) * self.shape[0] + o
            }
            Order::Image { pixels, channels } => (i % pixels) * channels + i / pixels,
        };
        self.offset + within
    }
}
