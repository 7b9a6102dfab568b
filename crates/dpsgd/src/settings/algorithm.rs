//! Clipping, steps, the algorithm inside a group and the optimizer outside, decided.

use std::sync::Arc;

use dpsgd_engine::spec::{Loss, NetworkSpec};
use dpsgd_engine::views::Augment;
use dpsgd_train::{
    Average, GroupResult, Inner, InnerAlgorithm, InnerSequence, Native, NoiseKind, Outer, PlanConfig,
    Schedule,
};

use super::names::{Choose, InnerName, NoiseName, OuterName, ResultName};
use super::rule::{self, Of};
use super::{RawSettings, SettingsError, augment, defaults, number, refuse};

/// What a round computes, apart from the mechanism.
#[derive(Clone, Debug)]
pub struct Algorithm {
    /// C by round.
    pub clip: Schedule,
    /// η by round.
    pub step: Schedule,
    /// What the groups run, in turn.
    pub inner: InnerChoice,
    /// What a group hands over.
    pub result: GroupResult,
    /// What happens with the noised update.
    pub outer: Outer,
    /// α of label smoothing.
    pub label_smoothing: f64,
    /// The views of a sample whose gradients are averaged, where there are any.
    pub augment: Option<Augment>,
    /// λ of weight decay.
    pub weight_decay: f64,
    /// The average of w that is kept beside it.
    pub average: Average,
    /// Which of the two becomes the model.
    pub choose: Choose,
    /// How the noise is drawn.
    pub noise: NoiseKind,
}

/// What the groups run.
#[derive(Clone, Debug)]
pub enum InnerChoice {
    /// Built-in algorithms, used in turn.
    BuiltIn(Vec<(InnerName, Inner)>),
    /// An algorithm of the program's own; a file can only say that there is one.
    Own(Option<Arc<dyn InnerAlgorithm>>),
}

impl Algorithm {
    pub(super) fn resolve(raw: &RawSettings) -> Result<Self, SettingsError> {
        let (clip, step) = match raw.is_table() {
            true => (defaults::TABLE_CLIP, defaults::TABLE_STEP),
            false => (defaults::CLIP, defaults::STEP),
        };
        let (clip, step) = (raw.clip.unwrap_or(clip), raw.step.unwrap_or(step));
        let usual_rule = usual_rule(raw);
        let (inner, result) = inner(raw)?;
        let average = rule::average(raw.average.as_deref().unwrap_or("none"))?;
        if raw.choose.is_some() && average == Average::None {
            return refuse("choose: only with --average, beside which there is something to choose");
        }
        Ok(Self {
            clip: rule::parse(Of::Clip, clip, raw.clip_rule.as_deref().unwrap_or("constant"))?,
            step: rule::parse(Of::Step, step, raw.step_rule.as_deref().unwrap_or(&usual_rule))?,
            inner,
            result,
            outer: outer(raw)?,
            label_smoothing: label_smoothing(raw)?,
            augment: augment::parse(raw)?,
            weight_decay: raw.weight_decay.unwrap_or(0.0),
            average,
            choose: raw.choose.unwrap_or_default(),
            noise: raw.noise.unwrap_or(NoiseName::Exact).into(),
        })
    }

    /// Writes every decision down.
    pub(super) fn write(&self, raw: &mut RawSettings) {
        raw.clip = Some(self.clip.start);
        raw.clip_rule = Some(rule::written(&self.clip));
        raw.step = Some(self.step.start);
        raw.step_rule = Some(rule::written(&self.step));
        raw.noise = Some(match self.noise {
            NoiseKind::Fast => NoiseName::Fast,
            _ => NoiseName::Exact,
        });
        match &self.inner {
            InnerChoice::Own(_) => raw.inner = vec![InnerName::Own],
            InnerChoice::BuiltIn(list) => {
                raw.inner = list.iter().map(|(name, _)| *name).collect();
                raw.inner_step = list.iter().find_map(|(_, inner)| inner.step());
                raw.inner_result = raw.inner_step.map(|_| match self.result {
                    GroupResult::ModelDifference => ResultName::Difference,
                    _ => ResultName::Sum,
                });
            }
        }
        raw.label_smoothing = (self.label_smoothing != 0.0).then_some(self.label_smoothing);
        augment::write(self.augment, raw);
        raw.weight_decay = (self.weight_decay != 0.0).then_some(self.weight_decay);
        raw.average = rule::written_average(&self.average);
        raw.choose = raw.average.is_some().then_some(self.choose);
        (raw.outer, raw.momentum) = match &self.outer {
            Outer::Momentum { momentum, .. } => (Some(OuterName::Momentum), Some(*momentum)),
            Outer::Adam { .. } => (Some(OuterName::Adam), None),
            _ => (Some(OuterName::Plain), None),
        };
    }

    /// Refuses what a file cannot say, and what would therefore be stated wrongly.
    pub(super) fn check_written(&self) -> Result<(), SettingsError> {
        let outer = match &self.outer {
            Outer::Plain | Outer::Momentum { nesterov: false, .. } => true,
            other => *other == Outer::ADAM,
        };
        if !outer {
            return refuse(
                "outer: only plain, momentum and Adam with its usual constants can be written down",
            );
        }
        for (of, schedule) in [(Of::Clip, &self.clip), (Of::Step, &self.step)] {
            if rule::parse(of, schedule.start, &rule::written(schedule))? != *schedule {
                return refuse(
                    "clip-rule, step-rule: constants other than the usual ones cannot be written down",
                );
            }
        }
        Ok(())
    }

    /// Puts it into a plan.
    pub(super) fn fill(&self, plan: &mut PlanConfig) -> Result<(), SettingsError> {
        plan.clipping = self.clip;
        plan.step = self.step;
        plan.inner = match &self.inner {
            InnerChoice::BuiltIn(list) => {
                InnerSequence::Cycle(list.iter().map(|(_, inner)| inner.clone()).collect())
            }
            InnerChoice::Own(Some(algorithm)) => Inner::Custom(Arc::clone(algorithm)).into(),
            InnerChoice::Own(None) => {
                return refuse(
                    "inner = own: the run used an algorithm of its program, and only that program can continue it",
                );
            }
        };
        plan.result = self.result;
        plan.outer = self.outer.clone();
        plan.weight_decay = self.weight_decay;
        plan.average = self.average;
        plan.noise = self.noise;
        Ok(())
    }

    /// The network of the engine, with what happens to a sample inside A.
    pub fn inside(&self, model: Native) -> Native {
        model.smoothed(self.label_smoothing as f32).augmented(self.augment)
    }

    /// Refuses what makes no sense for a network of the engine.
    pub(crate) fn check_for(&self, spec: &NetworkSpec) -> Result<(), SettingsError> {
        if self.label_smoothing != 0.0 && spec.loss == Loss::Squared {
            let given = number(self.label_smoothing);
            return refuse(format!("label-smoothing = {given}: only with classes; a squared loss has none"));
        }
        match self.augment.and_then(|augment| augment.misfit(spec.input)) {
            Some(why) => refuse(why),
            None => Ok(()),
        }
    }

    /// Refuses what only the engine does, for a model of the program's own.
    pub(crate) fn check_for_own_model(&self) -> Result<(), SettingsError> {
        if self.label_smoothing == 0.0 && self.augment.is_none() {
            return Ok(());
        }
        refuse(
            "label-smoothing, augment: only with the built-in networks; a model of your own computes its \
             loss and its views itself",
        )
    }

    /// What an inner algorithm of the program's own says about itself.
    pub fn own_inner(&self) -> Option<String> {
        match &self.inner {
            InnerChoice::Own(Some(algorithm)) => Some(algorithm.describe()),
            InnerChoice::Own(None) | InnerChoice::BuiltIn(_) => None,
        }
    }

    /// What was run, name and value, for people; `own` describes an inner algorithm of the program's own.
    pub fn rows(&self, own: Option<&str>) -> Vec<(&'static str, String)> {
        let mut rows = vec![
            ("How the noise is drawn", self.noise.covers().to_string()),
            ("Clipping norm C", rule::described(&self.clip)),
            ("Step η", rule::described(&self.step)),
            ("Inside a group", self.described_inner(own)),
            (
                "Outer optimizer",
                match &self.outer {
                    Outer::Momentum { momentum, .. } => format!("momentum {}", number(*momentum)),
                    Outer::Adam { .. } => "Adam".to_string(),
                    _ => "plain".to_string(),
                },
            ),
        ];
        if self.label_smoothing != 0.0 {
            rows.push(("Label smoothing", number(self.label_smoothing)));
        }
        if let Some(Augment { flip, shift, views }) = self.augment {
            let flipped = if flip { ", half of them flipped" } else { "" };
            let shifted =
                if shift > 0 { format!(", shifted by up to {shift} pixels") } else { String::new() };
            let said = format!("the mean gradient over {views} random views of each image{flipped}{shifted}");
            rows.push(("Augmentation", format!("{said}; clipped as one")));
        }
        if self.weight_decay != 0.0 {
            rows.push(("Weight decay", format!("{}, of the released w", number(self.weight_decay))));
        }
        if let Some(average) = rule::written_average(&self.average) {
            let chosen = match self.choose {
                Choose::Average => "it is the model",
                Choose::Last => "kept beside the model",
                Choose::Better => "the better on the public test set of it and the last iterate is the model",
            };
            rows.push(("Average of the iterates", format!("{average}; {chosen}")));
        }
        rows
    }

    fn described_inner(&self, own: Option<&str>) -> String {
        let InnerChoice::BuiltIn(list) = &self.inner else {
            return format!("an algorithm of the program's own: {}", own.unwrap_or("not described"));
        };
        let names: Vec<&str> = list.iter().map(|(name, _)| described(*name)).collect();
        let mut text = names.join(", then ");
        if let Some(step) = list.iter().find_map(|(_, inner)| inner.step()) {
            let result = match self.result {
                GroupResult::ModelDifference => "the model difference",
                _ => "the sum of its gradients",
            };
            text.push_str(&format!(" with η = {}; it hands over {result}", number(step)));
        }
        text
    }
}

/// How η changes, where nobody says it.
fn usual_rule(raw: &RawSettings) -> String {
    let epochs = raw.epochs.unwrap_or(raw.usual_epochs());
    match (raw.step, raw.is_table(), raw.rounds) {
        (None, false, _) => defaults::STEP_RULE.to_string(),
        (None, true, None) => format!("step:0.5:{}", (epochs / defaults::TABLE_HALVINGS).max(1)),
        _ => "constant".to_string(),
    }
}

fn label_smoothing(raw: &RawSettings) -> Result<f64, SettingsError> {
    match raw.label_smoothing {
        Some(given) if !(0.0..1.0).contains(&given) => {
            refuse(format!("label-smoothing = {}: at least 0 and below 1", number(given)))
        }
        given => Ok(given.unwrap_or(0.0)),
    }
}

fn described(name: InnerName) -> &'static str {
    match name {
        InnerName::Gradient => "the mean gradient",
        InnerName::Sgd => "SGD, sample by sample",
        InnerName::Momentum => "SGD with momentum",
        InnerName::Adam => "Adam",
        InnerName::Adagrad => "AdaGrad",
        InnerName::Rmsprop => "RMSProp",
        InnerName::Own => "an algorithm of the program's own",
    }
}

fn inner(raw: &RawSettings) -> Result<(InnerChoice, GroupResult), SettingsError> {
    let names = if raw.inner.is_empty() { &[InnerName::Gradient][..] } else { &raw.inner[..] };
    if names.contains(&InnerName::Own) {
        return match names {
            [_] => Ok((InnerChoice::Own(None), GroupResult::default())),
            _ => refuse("inner: own stands alone, or not at all"),
        };
    }
    if names.iter().all(|name| *name == InnerName::Gradient) {
        for (name, given) in
            [("inner-step", raw.inner_step.is_some()), ("inner-result", raw.inner_result.is_some())]
        {
            if given {
                return refuse(format!(
                    "{name}: only with an --inner algorithm that takes several steps (gradient takes none)"
                ));
            }
        }
    }
    let step = raw.inner_step.unwrap_or(defaults::INNER_STEP);
    let word = |name: &InnerName| match name {
        InnerName::Sgd => "sgd",
        InnerName::Momentum => "momentum",
        InnerName::Adam => "adam",
        InnerName::Adagrad => "adagrad",
        InnerName::Rmsprop => "rmsprop",
        InnerName::Gradient | InnerName::Own => "gradient",
    };
    // Every word above is a name that the trainer knows.
    let list = names.iter().map(|name| (*name, Inner::named(word(name), step).unwrap_or(Inner::Gradient)));
    let result = match raw.inner_result.unwrap_or(ResultName::Sum) {
        ResultName::Sum => GroupResult::SumOfGradients,
        ResultName::Difference => GroupResult::ModelDifference,
    };
    Ok((InnerChoice::BuiltIn(list.collect()), result))
}

fn outer(raw: &RawSettings) -> Result<Outer, SettingsError> {
    let name = raw.outer.unwrap_or(OuterName::Momentum);
    if let (Some(momentum), true) = (raw.momentum, name != OuterName::Momentum) {
        return refuse(format!("momentum = {}: only with --outer momentum", number(momentum)));
    }
    Ok(match name {
        OuterName::Plain => Outer::Plain,
        OuterName::Momentum => {
            Outer::Momentum { momentum: raw.momentum.unwrap_or(defaults::MOMENTUM), nesterov: false }
        }
        OuterName::Adam => Outer::ADAM,
    })
}
