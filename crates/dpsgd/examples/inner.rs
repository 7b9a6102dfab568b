//! An inner algorithm of your own on a built-in network, audited before it trains.

use std::sync::Arc;

use dpsgd::audit::{Effort, Options, audit};
use dpsgd::train::{GroupContext, InnerAlgorithm, ModelError};
use dpsgd::{Prepared, RawSettings};

fn sign(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { x.signum() }
}

/// The sum of the signs of the gradients of a group's samples: steps of one size in every coordinate.
#[derive(Debug)]
struct SignSum;

impl InnerAlgorithm for SignSum {
    fn name(&self) -> &str {
        "sign-sum"
    }

    fn run(&self, group: &mut GroupContext<'_>) -> Result<f32, ModelError> {
        let size = group.samples().len();
        let mut losses = 0.0;
        group.vectors().result.fill(0.0);
        for member in 0..size {
            losses += group.gradient_of(member)?;
            let vectors = group.vectors();
            vectors.result.iter_mut().zip(vectors.gradient).for_each(|(sum, g)| *sum += sign(*g));
        }
        Ok(losses / size as f32)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let raw = RawSettings {
        net: Some("logistic".into()),
        groups: Some(256),
        group_size: Some(8),
        epochs: Some(3),
        step: Some(0.5),
        ..Default::default()
    };
    let mut prepared = Prepared::new(&raw, &mut ())?;
    prepared.use_inner(Arc::new(SignSum))?;
    // Does it keep to its own group and forget it afterwards? The audit of the whole mechanism asks that,
    // too.
    let options = Options { effort: Effort::Trials(500), seed: Some(1), threads: 2, delta: 1e-5 };
    let found = audit(&prepared.plan, &options)?;
    assert!(!found.contradicts(), "the audit contradicts the claim");
    println!("{}", prepared.start(std::env::args().nth(1).map(Into::into))?.train(&mut ())?.statement);
    Ok(())
}
