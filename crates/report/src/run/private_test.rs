//! What was measured on a private test set, with noise.

use serde::{Deserialize, Serialize};

use crate::text::number;

/// What a run released about its private test set, once.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PrivateMeasurement {
    /// µ of the release for one differing sample.
    pub mu: f64,
    /// The samples of the test set.
    pub samples: u64,
    /// The share predicted correctly.
    pub accuracy: Option<f64>,
    /// The standard deviation of the noise in it.
    pub accuracy_noise: Option<f64>,
    /// The mean squared error, where the model predicts a value; each error counts at most 1.
    pub squared_error: Option<f64>,
    /// The standard deviation of the noise in it.
    pub squared_error_noise: Option<f64>,
    /// For two classes: the area under the ROC curve.
    pub auc: Option<f64>,
    /// For two classes: the mean precision over the positives.
    pub average_precision: Option<f64>,
    /// For two classes: about how many positives there are.
    pub positives: Option<f64>,
}

impl PrivateMeasurement {
    /// What was found, in a sentence.
    pub fn found(&self) -> String {
        let mut said = Vec::new();
        if let Some(accuracy) = self.accuracy {
            let noise = 100.0 * self.accuracy_noise.unwrap_or(0.0);
            said.push(format!("accuracy {:.1} % (noise ± {noise:.1} %)", 100.0 * accuracy));
        }
        if let Some(error) = self.squared_error {
            let noise = self.squared_error_noise.unwrap_or(0.0);
            said.push(format!("mean squared error {error:.4} (noise ± {noise:.4})"));
        }
        if let (Some(auc), Some(precision), Some(positives)) =
            (self.auc, self.average_precision, self.positives)
        {
            said.push(format!(
                "AUC {auc:.3}, average precision {precision:.3}, about {positives:.0} positives, all with noise"
            ));
        }
        format!(
            "on a private test set of {} samples, measured once with µ = {}, which the guarantee counts: {}",
            self.samples,
            number(self.mu),
            said.join(", ")
        )
    }
}
