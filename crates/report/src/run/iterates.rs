//! The last iterate and the average of all, side by side, and which of them is the model.

use serde::{Deserialize, Serialize};

/// One of the two.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Iterate {
    /// w after the last round.
    Last,
    /// The average of the iterates.
    Average,
}

/// How the model was chosen.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChosenBy {
    /// By a rule that was fixed before the run.
    Rule,
    /// By what both reach on the public test set. What the model reaches there then reads too high.
    PublicTest,
}

/// What an iterate reaches on the public test set.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Reached {
    /// The mean loss; NaN, written as null, where there is none.
    #[serde(deserialize_with = "super::undefined")]
    pub test_loss: f64,
    /// The share predicted correctly.
    pub test_accuracy: Option<f64>,
}

/// Both, where a run keeps an average beside w. It is post-processing of what left anyway.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Iterates {
    /// Which one is the model.
    pub chosen: Iterate,
    /// How it was chosen.
    pub by: ChosenBy,
    /// The last one.
    pub last: Reached,
    /// The average.
    pub average: Reached,
}

impl Iterates {
    /// Which one is the model, how it was chosen, and what the other reaches, in a sentence.
    pub fn said(&self) -> String {
        let (name, other, beside) = match self.chosen {
            Iterate::Average => ("the average of the iterates", "the last iterate", self.last),
            Iterate::Last => ("the last iterate", "the average of the iterates", self.average),
        };
        let how = match self.by {
            ChosenBy::Rule => "by a rule fixed before the run",
            ChosenBy::PublicTest => {
                "because it does better on the public test set, so that what it reaches there reads too high"
            }
        };
        let beside = match (beside.test_accuracy, beside.test_loss.is_nan()) {
            (Some(accuracy), _) => format!("; {other} reaches {:.2} %", 100.0 * accuracy),
            (None, false) => format!("; {other} has loss {:.4}", beside.test_loss),
            (None, true) => String::new(),
        };
        format!("the model is {name}, chosen {how}{beside}")
    }

    /// The file with the one that is not the model.
    pub fn other_file(&self) -> &'static str {
        match self.chosen {
            Iterate::Average => "last.safetensors",
            Iterate::Last => "average.safetensors",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_which_and_how() {
        let reached = |accuracy| Reached { test_loss: 0.5, test_accuracy: accuracy };
        let both = Iterates {
            chosen: Iterate::Average,
            by: ChosenBy::Rule,
            last: reached(Some(0.97)),
            average: reached(Some(0.98)),
        };
        assert_eq!(
            both.said(),
            "the model is the average of the iterates, chosen by a rule fixed before the run; the last \
             iterate reaches 97.00 %"
        );
        let chosen = Iterates { chosen: Iterate::Last, by: ChosenBy::PublicTest, ..both };
        assert!(chosen.said().contains("reads too high; the average of the iterates reaches 98.00 %"));
        let unmeasured = Reached { test_loss: f64::NAN, test_accuracy: None };
        let alone = Iterates { last: unmeasured, average: unmeasured, ..both };
        assert!(alone.said().ends_with("before the run"));
        let text = serde_json::to_string(&alone).unwrap();
        assert!(text.contains(r#""chosen":"average","by":"rule","last":{"test_loss":null"#), "{text}");
        let read: Iterates = serde_json::from_str(&text).unwrap();
        assert!(read.last.test_loss.is_nan() && read.chosen == Iterate::Average);
    }
}
