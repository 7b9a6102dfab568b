//! The one table of defaults: what every setting is when nobody says otherwise.
//!
//! `account`, `calibrate`, `curve`, `train` and `audit` read the same table, so the same settings describe
//! the same run everywhere.

/// The data set.
pub const DATA: &str = "mnist";
/// The network for images.
pub const NET: &str = "lenet5";
/// The network for tables. This and the other defaults for tables were chosen together, by the procedure in
/// `docs/results/tables.md`.
pub const TABLE_NET: &str = "logistic";
/// The part of a table that a round draws: one in this many.
pub const TABLE_PARTS: u64 = 10;
/// E for tables.
pub const TABLE_EPOCHS: u64 = 20;
/// C for tables: about the length of the gradient of a row that is predicted wrongly, so that a rare class
/// is not clipped away.
pub const TABLE_CLIP: f64 = 4.0;
/// η for tables.
pub const TABLE_STEP: f64 = 0.125;
/// How often that step is halved.
pub const TABLE_HALVINGS: u64 = 4;
/// The network on top of fixed features.
pub const FEATURES_NET: &str = "logistic";
/// m, groups a round.
pub const GROUPS: u64 = 2048;
/// s, samples a group.
pub const GROUP_SIZE: u64 = 1;
/// E, epochs.
pub const EPOCHS: u64 = 30;
/// g, the number of samples in which neighbours differ.
pub const DIFFERING: u64 = 1;
/// δ.
pub const DELTA: f64 = 1e-5;
/// The ε that σ is calibrated to when no noise is given.
pub const TARGET_EPSILON: f64 = 3.0;
/// The false-alarm rates at which attacks are reported.
pub const ALPHAS: [f64; 3] = [0.01, 0.05, 0.5];
/// C, the clipping norm.
pub const CLIP: f64 = 0.1;
/// η, the step.
pub const STEP: f64 = 3.0;
/// How that step changes; any other step is constant unless a rule is given.
pub const STEP_RULE: &str = "step:0.5:20";
/// The coefficient of outer momentum.
pub const MOMENTUM: f64 = 0.9;
/// η inside a group, for the inner algorithms that take several steps.
pub const INNER_STEP: f64 = 0.05;
/// µ of a single release beside the training: the noised mean and variance of `normalise = "private"`, and
/// what is measured on a private test set.
pub const RELEASE_MU: f64 = 0.1;
/// The µ that such a release may have: below it there is no noise that is large enough.
pub const RELEASE_MU_RANGE: (f64, f64) = (1e-4, 1e3);
/// The largest share of the µ of the whole budget that such a release takes by default: its square, about a
/// seventh, is what the training loses.
pub const RELEASE_SHARE: f64 = 0.37;
/// K, the views of a sample, where there are any.
pub const VIEWS: u64 = 4;
