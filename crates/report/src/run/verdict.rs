//! Whether a model is better than one that ignores its inputs.

use super::{Baseline, Confusion, Measurement, TwoClasses};

/// What to tell whoever would rely on the accuracy alone.
///
/// The loss decides: it is what was trained, and a constant that knows the shares of the classes has the
/// smallest loss of all models that ignore their inputs. Accuracy alone says little where one class is rare.
pub fn verdict(last: &Measurement, baseline: Option<Baseline>) -> Option<String> {
    let baseline = baseline?;
    let constant = baseline.loss?;
    if last.test_loss.is_nan() {
        return Some("The loss on the test set is not a number: the training diverged. Lower --step.".into());
    }
    let poor_loss = last.test_loss >= constant;
    let majority = baseline.accuracy.zip(last.test_accuracy);
    let poor_accuracy = majority.is_none_or(|(most, reached)| reached <= most);
    let loss = format!("its test loss is {:.4}, that of the best constant {constant:.4}", last.test_loss);
    let accuracy = majority.map(|(most, reached)| {
        let (most, reached) = (100.0 * most, 100.0 * reached);
        format!("its accuracy is {reached:.2} %, that of always answering the most common class {most:.2} %")
    });
    let accuracy = accuracy.map(|said| format!(", and {said}")).unwrap_or_default();
    match (poor_loss, poor_accuracy) {
        (true, true) => Some(format!(
            "This model is no better than a constant: {loss}{accuracy}. It has learned nothing that can be \
             used. More samples, a larger ε, or fewer parameters (--net logistic) may help."
        )),
        (true, false) => Some(format!(
            "The probabilities of this model are worse than a constant's: {loss}. It ranks and predicts \
             better than chance, but do not rely on how sure it is."
        )),
        (false, true) => last.two_classes.filter(rarely_positive).map(|seen| {
            format!(
                "With the threshold ½ this model hardly ever predicts the positive class{accuracy}. Its probabilities do \
                 carry information (AUC {:.3}): rank by them, or choose a lower threshold.",
                seen.auc
            )
        }),
        (false, false) => None,
    }
}

/// Whether class 1 is predicted less than half as often as it occurs.
fn rarely_positive(seen: &TwoClasses) -> bool {
    let Confusion { false_positives, false_negatives, true_positives, .. } = seen.confusion;
    2 * (true_positives + false_positives) < true_positives + false_negatives
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(loss: f64, accuracy: f64) -> Option<String> {
        let two_classes = TwoClasses::of(vec![(0.3, true), (0.2, false), (0.1, false)]);
        let last = Measurement { test_accuracy: Some(accuracy), two_classes, ..Measurement::of_loss(loss) };
        verdict(&last, Some(Baseline { accuracy: Some(0.95), loss: Some(0.19) }))
    }

    #[test]
    fn a_useless_model_is_called_useless() {
        // The trial: 95.30 % right, a loss of 0.391.
        assert!(said(0.391, 0.95).unwrap().starts_with("This model is no better than a constant"));
        assert!(said(0.391, 0.96).unwrap().contains("worse than a constant's"));
        assert!(said(0.15, 0.95).unwrap().contains("AUC 1.000"));
        assert_eq!(said(0.15, 0.96), None);
        assert!(said(f64::NAN, 0.95).unwrap().contains("diverged"));
    }

    #[test]
    fn without_a_baseline_nothing_is_said() {
        assert_eq!(verdict(&Measurement::of_loss(1.0), None), None);
    }
}
