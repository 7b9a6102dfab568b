//! What `dpsgd train` does with no arguments, in one place.

/// The data set.
pub const DATA: &str = "mnist";
/// The network for images.
pub const NET: &str = "lenet5";
/// The network for tables.
pub const TABLE_NET: &str = "mlp";
/// The network for features.
pub const FEATURES_NET: &str = "logistic";
/// m, groups a round.
pub const GROUPS: u64 = 2048;
/// s, samples a group.
pub const GROUP_SIZE: u64 = 1;
/// E, epochs.
pub const EPOCHS: u64 = 30;
/// δ.
pub const DELTA: f64 = 1e-5;
/// The ε that σ is calibrated to when no noise is given.
pub const TARGET_EPSILON: f64 = 3.0;
/// C, the clipping norm.
pub const CLIP: f64 = 0.1;
/// η, the step.
pub const STEP: f64 = 3.0;
/// How that step changes; a step of one's own is constant unless a rule is given.
pub const STEP_RULE: &str = "step:0.5:20";
/// The coefficient of outer momentum.
pub const MOMENTUM: f64 = 0.9;
/// η inside a group, for the inner algorithms that take several steps.
pub const INNER_STEP: f64 = 0.05;
/// µ of the noised mean and variance of `--normalise private`.
pub const NORMALISE_MU: f64 = 0.1;
