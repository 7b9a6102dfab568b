//! PyTorch's constants, in one place.

/// µ of SGD with momentum.
pub const MOMENTUM: f64 = 0.9;
/// β₁ of Adam.
pub const ADAM_BETA1: f64 = 0.9;
/// β₂ of Adam.
pub const ADAM_BETA2: f64 = 0.999;
/// ε of Adam.
pub const ADAM_EPSILON: f64 = 1e-8;
/// ε of AdaGrad.
pub const ADAGRAD_EPSILON: f64 = 1e-10;
/// α of RMSProp.
pub const RMSPROP_ALPHA: f64 = 0.99;
/// ε of RMSProp.
pub const RMSPROP_EPSILON: f64 = 1e-8;
