//! A plan in a file: written with a version, read only through the check.
//!
//! A file holds no code. Algorithms, optimizers and hooks of the user's own are written by name, so that a
//! reader of the file knows of them, and refused when a plan is read back.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use dpsgd_privacy::mechanism::Mechanism;

use super::{Plan, PlanConfig};
use crate::average::Average;
use crate::error::PlanError;
use crate::inner::{GroupResult, Inner, InnerSequence};
use crate::noise::NoiseKind;
use crate::outer::Outer;
use crate::schedule::Schedule;

/// The version that is written, and the only one that is read.
const VERSION: u64 = 1;

/// The fields of a plan. Plain values come before lists and tables, as TOML wants them.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Written {
    version: u64,
    threads: usize,
    diagnostics: bool,
    noise: NoiseKind,
    result: GroupResult,
    divisors: Vec<WrittenDivisor>,
    /// Written only where there is one, so that other plans are written as they were before.
    #[serde(default, skip_serializing_if = "is_zero")]
    weight_decay: f64,
    clipping: Schedule,
    step: Schedule,
    outer: WrittenOuter,
    inner: WrittenSequence,
    #[serde(default, skip_serializing_if = "is_none")]
    average: Average,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hook: Option<WrittenHook>,
    mechanism: Mechanism,
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

fn is_none(average: &Average) -> bool {
    *average == Average::None
}

/// `"groups"` for m, or the public constant of Poisson sampling and random allocation.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WrittenDivisor {
    Groups(Groups),
    Constant(f64),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Groups {
    Groups,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case", deny_unknown_fields)]
enum WrittenOuter {
    Plain,
    Momentum { momentum: f64, nesterov: bool },
    Adam { beta1: f64, beta2: f64, epsilon: f64 },
    Custom { optimizer: String },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WrittenSequence {
    Cycle(Vec<WrittenInner>),
    Pieces(Vec<(u64, WrittenInner)>),
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "lowercase", deny_unknown_fields)]
enum WrittenInner {
    Gradient,
    Sgd { step: f64 },
    Momentum { step: f64, momentum: f64 },
    Adam { step: f64, beta1: f64, beta2: f64, epsilon: f64 },
    AdaGrad { step: f64, epsilon: f64 },
    RmsProp { step: f64, alpha: f64, epsilon: f64 },
    Custom { algorithm: String },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHook {
    bound: f64,
}

fn no_code(name: &'static str, given: &str) -> PlanError {
    PlanError::new(
        name,
        given,
        "a built-in one",
        "a file holds no code: build this plan in the program that has it, and read only built-in plans from \
         files",
    )
}

impl From<&Inner> for WrittenInner {
    fn from(inner: &Inner) -> Self {
        match *inner {
            Inner::Gradient => Self::Gradient,
            Inner::Sgd { step } => Self::Sgd { step },
            Inner::Momentum { step, momentum } => Self::Momentum { step, momentum },
            Inner::Adam { step, beta1, beta2, epsilon } => Self::Adam { step, beta1, beta2, epsilon },
            Inner::AdaGrad { step, epsilon } => Self::AdaGrad { step, epsilon },
            Inner::RmsProp { step, alpha, epsilon } => Self::RmsProp { step, alpha, epsilon },
            Inner::Custom(ref own) => Self::Custom { algorithm: own.name().to_string() },
        }
    }
}

impl TryFrom<WrittenInner> for Inner {
    type Error = PlanError;

    fn try_from(written: WrittenInner) -> Result<Self, PlanError> {
        Ok(match written {
            WrittenInner::Gradient => Inner::Gradient,
            WrittenInner::Sgd { step } => Inner::Sgd { step },
            WrittenInner::Momentum { step, momentum } => Inner::Momentum { step, momentum },
            WrittenInner::Adam { step, beta1, beta2, epsilon } => Inner::Adam { step, beta1, beta2, epsilon },
            WrittenInner::AdaGrad { step, epsilon } => Inner::AdaGrad { step, epsilon },
            WrittenInner::RmsProp { step, alpha, epsilon } => Inner::RmsProp { step, alpha, epsilon },
            WrittenInner::Custom { algorithm } => return Err(no_code("inner", &algorithm)),
        })
    }
}

impl From<&InnerSequence> for WrittenSequence {
    fn from(sequence: &InnerSequence) -> Self {
        match sequence {
            InnerSequence::Cycle(list) => Self::Cycle(list.iter().map(Into::into).collect()),
            InnerSequence::Pieces(pieces) => {
                Self::Pieces(pieces.iter().map(|(start, inner)| (*start, inner.into())).collect())
            }
        }
    }
}

impl TryFrom<WrittenSequence> for InnerSequence {
    type Error = PlanError;

    fn try_from(written: WrittenSequence) -> Result<Self, PlanError> {
        Ok(match written {
            WrittenSequence::Cycle(list) => {
                InnerSequence::Cycle(list.into_iter().map(Inner::try_from).collect::<Result<_, _>>()?)
            }
            WrittenSequence::Pieces(pieces) => {
                let piece = |(start, inner): (u64, WrittenInner)| Ok((start, inner.try_into()?));
                InnerSequence::Pieces(pieces.into_iter().map(piece).collect::<Result<_, PlanError>>()?)
            }
        })
    }
}

impl From<&Outer> for WrittenOuter {
    fn from(outer: &Outer) -> Self {
        match *outer {
            Outer::Plain => Self::Plain,
            Outer::Momentum { momentum, nesterov } => Self::Momentum { momentum, nesterov },
            Outer::Adam { beta1, beta2, epsilon } => Self::Adam { beta1, beta2, epsilon },
            Outer::Custom(ref own) => Self::Custom { optimizer: own.name().to_string() },
        }
    }
}

impl TryFrom<WrittenOuter> for Outer {
    type Error = PlanError;

    fn try_from(written: WrittenOuter) -> Result<Self, PlanError> {
        Ok(match written {
            WrittenOuter::Plain => Outer::Plain,
            WrittenOuter::Momentum { momentum, nesterov } => Outer::Momentum { momentum, nesterov },
            WrittenOuter::Adam { beta1, beta2, epsilon } => Outer::Adam { beta1, beta2, epsilon },
            WrittenOuter::Custom { optimizer } => return Err(no_code("outer", &optimizer)),
        })
    }
}

impl Serialize for PlanConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let divisor = |divisor: &Option<f64>| match divisor {
            Some(constant) => WrittenDivisor::Constant(*constant),
            None => WrittenDivisor::Groups(Groups::Groups),
        };
        Written {
            version: VERSION,
            threads: self.threads,
            diagnostics: self.diagnostics,
            noise: self.noise,
            result: self.result,
            divisors: self.divisors.iter().map(divisor).collect(),
            clipping: self.clipping,
            step: self.step,
            outer: (&self.outer).into(),
            weight_decay: self.weight_decay,
            average: self.average,
            inner: (&self.inner).into(),
            hook: self.hook.as_ref().map(|hook| WrittenHook { bound: hook.bound() }),
            mechanism: self.mechanism.clone(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PlanConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        if written.version != VERSION {
            return Err(de::Error::custom(format!(
                "version = {}: this release reads version {VERSION}; read the file with the release that \
                 wrote it, or a newer one",
                written.version
            )));
        }
        if let Some(hook) = written.hook {
            return Err(de::Error::custom(no_code("hook", &format!("one with bound {}", hook.bound))));
        }
        let divisor = |divisor: WrittenDivisor| match divisor {
            WrittenDivisor::Constant(constant) => Some(constant),
            WrittenDivisor::Groups(Groups::Groups) => None,
        };
        Ok(Self {
            mechanism: written.mechanism,
            divisors: written.divisors.into_iter().map(divisor).collect(),
            inner: written.inner.try_into().map_err(de::Error::custom)?,
            result: written.result,
            clipping: written.clipping,
            step: written.step,
            outer: written.outer.try_into().map_err(de::Error::custom)?,
            weight_decay: written.weight_decay,
            average: written.average,
            noise: written.noise,
            hook: None,
            diagnostics: written.diagnostics,
            threads: written.threads,
        })
    }
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.config().serialize(serializer)
    }
}

/// # Guarantee
/// Whatever is read has passed [`PlanConfig::check`] like any other plan.
impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        PlanConfig::deserialize(deserializer)?.check().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use dpsgd_privacy::mechanism::{Length, NoiseScale, PhaseConfig, RunConfig, Sampling};

    use super::*;
    use crate::hook::Hook;
    use crate::schedule::{Rule, Shape};

    fn config() -> PlanConfig {
        let phase = |sampling| PhaseConfig {
            sampling,
            length: Length::Rounds(7),
            noise: NoiseScale::Sigma(1.1),
            filtered: false,
        };
        let mut run = RunConfig::single(phase(Sampling::Shuffle { samples: 100, groups: 5, group_size: 2 }));
        run.phases.push(phase(Sampling::Poisson { rate: 0.1 }));
        PlanConfig::new(run.check().unwrap(), 0.3, 0.1).with_divisor(12.5)
    }

    #[test]
    fn what_is_written_is_read() {
        let adam = Inner::named("adam", 0.01).unwrap();
        for inner in ["gradient", "sgd", "momentum", "adam", "adagrad", "rmsprop"] {
            let mut config = config();
            config.threads = 3;
            let first = Inner::named(inner, 0.1).unwrap();
            config.inner = InnerSequence::Pieces(vec![(0, first), (3, adam.clone())]);
            config.outer = Outer::Momentum { momentum: 0.9, nesterov: true };
            config.clipping.rule = Rule::FollowUpdate { share: 0.5, rate: 0.1, lowest: 0.1, highest: 1.0 };
            config.step.rule = match inner {
                "sgd" => Rule::Annealed { warmup: 0.1, shape: Shape::Cosine, end: 0.01 },
                _ => Rule::Step { factor: 0.1 + 0.2, epochs: 3 },
            };
            if inner == "adam" {
                (config.weight_decay, config.average) = (0.01, Average::Exponential { decay: 0.9 });
            }
            let plan = config.check().unwrap();
            let text = serde_json::to_string(&plan).unwrap();
            assert!(text.starts_with(r#"{"version":1,"#), "{text}");
            assert!(text.contains(r#""divisors":["groups",12.5]"#), "{text}");
            assert!(text.contains(&format!(r#"{{"name":"{inner}""#)), "{text}");
            let read: Plan = serde_json::from_str(&text).unwrap();
            assert_eq!(format!("{read:?}"), format!("{plan:?}"));
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
        }
    }

    #[test]
    fn an_allocated_plan_is_read_back() {
        let phase = |sampling| PhaseConfig {
            sampling,
            length: Length::Rounds(7),
            noise: NoiseScale::Sigma(1.1),
            filtered: false,
        };
        let mut run = RunConfig::single(phase(Sampling::Allocate { rounds: 5 }));
        run.phases.push(phase(Sampling::Allocate { rounds: 3 }));
        let config = PlanConfig::new(run.check().unwrap(), 0.3, 0.1).with_divisor(12.5);
        let plan = config.check().unwrap();
        let text = serde_json::to_string(&plan).unwrap();
        assert!(text.contains(r#""divisors":[12.5,12.5]"#), "{text}");
        assert!(text.contains(r#"{"kind":"allocate","rounds":5}"#), "{text}");
        let read: Plan = serde_json::from_str(&text).unwrap();
        assert_eq!(format!("{read:?}"), format!("{plan:?}"));
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        for (from, to, says) in [
            ("12.5,12.5", "12.5,\"groups\"", "divisor = none"),
            (r#""rounds":5"#, r#""rounds":0"#, "rounds-per-epoch = 0"),
            (r#""rounds":5}"#, r#""rounds":5,"samples":9}"#, "unknown field `samples`"),
        ] {
            assert!(text.contains(from), "{text}");
            let error = serde_json::from_str::<Plan>(&text.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn what_cannot_run_is_refused() {
        let mut own = config();
        own.inner = Inner::custom(Inner::Gradient).into();
        let mut outer = config();
        outer.outer = Outer::custom(Outer::ADAM);
        let mut hook = config();
        hook.hook = Some(Hook::new(1.0, |_: &mut [f32]| {}));
        for (config, says) in
            [(own, "inner = gradient: a built-in"), (outer, "outer = adam"), (hook, "hook = one")]
        {
            let text = serde_json::to_string(&config).unwrap();
            let error = serde_json::from_str::<PlanConfig>(&text).unwrap_err().to_string();
            assert!(error.starts_with(says) && error.contains("build this plan in the program"), "{error}");
        }
        let text = serde_json::to_string(&config()).unwrap();
        for (from, to, says) in [
            (r#""version":1"#, r#""version":2"#, "version = 2: this release reads version 1"),
            ("12.5", "1e-9", "divisor = 0.000000001"),
            (r#""start":0.3"#, r#""start":-1.0"#, "clip = -1"),
            (r#""threads":0"#, r#""treads":0"#, "unknown field `treads`"),
            ("\"rate\":0.1", "\"rate\":7.5", "rate = 7.5"),
        ] {
            assert!(text.contains(from), "{text}");
            let error = serde_json::from_str::<Plan>(&text.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
