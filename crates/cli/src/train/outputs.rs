//! What a run leaves in its directory at the end, and what is made of it later.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use dpsgd_train::directory::{CONFIG, MODEL, REPORT, RunDirectory, SUMMARY};
use serde_json::{Value, json};

use super::directory::{Book, Directory, saved_constants};
use super::evaluation;
use super::facts::Facts;
use super::metrics::{self, Epoch};
use super::report::Page;
use super::settings::TrainSettings;
use super::setup::Setup;
use super::summary::Summary;
use crate::account::Report;
use crate::curve::replace;
use crate::rounding::up;
use crate::settings::number;
use crate::statement::subscript;
use crate::{Failure, file, json};

/// Writes model, summary and report and closes the run; the summary and the statement.
pub fn finish(
    directory: &mut Directory,
    setup: &Setup,
    last: &Epoch,
    stopped: Option<String>,
    weights: &[f32],
) -> Result<(Value, String), Failure> {
    let book = directory.book();
    let facts = setup.facts();
    let account = facts.account(&setup.settings, book.charged)?;
    let summary = Summary {
        data: &facts.data,
        net: &facts.net,
        features: setup.settings.features,
        parameters: facts.parameters,
        directory: directory.path().display().to_string(),
        last,
        account: &account,
        noise: setup.settings.noise_kind(),
        resumes: book.resumes,
        stopped,
        uncovered: &facts.uncovered,
        constants: directory.constants(),
    };
    let value = summary.json();
    // One text only: the order of several is not defined, and a file with a seed is to be repeatable.
    let told = json!({
        "private": last.private,
        "note": value["note"],
        "data": facts.data,
        "net": facts.net,
        "guarantees": value["guarantees"],
        "uncovered": facts.uncovered,
        "features": value["features"],
        "normalisation": value["normalisation"],
    });
    let texts = HashMap::from([("dpsgd".to_string(), told.to_string())]);
    let model =
        setup.network.to_safetensors(weights, texts).map_err(|error| Failure::Machine(error.to_string()))?;
    directory.write(MODEL, &model)?;
    directory.write(SUMMARY, json::line(&value).as_bytes())?;
    let html = page(directory.path(), &setup.settings, &facts, &account, &book)?;
    directory.write(REPORT, html.as_bytes())?;
    let statement = summary.statement();
    directory.finish()?;
    Ok((value, statement))
}

/// The settings and the network of a run, checked again.
pub fn setup(directory: &Path, threads: Option<usize>) -> Result<Setup, Failure> {
    Setup::new(&TrainSettings { threads, ..config(directory)? })
}

fn config(directory: &Path) -> Result<TrainSettings, Failure> {
    let run = RunDirectory::view(directory)?;
    file::parse(&run.file(CONFIG), &run.config()?)
}

/// `dpsgd evaluate`: as JSON and for people.
pub fn evaluated(directory: &Path, threads: Option<usize>) -> Result<(Value, String), Failure> {
    let mut setup = Setup::to_evaluate(&TrainSettings { threads, ..config(directory)? })?;
    let book = Book::read(directory, &setup.settings, &setup.facts())?;
    let path = directory.join(MODEL);
    let refuse = |why: String| Failure::Input(format!("{}: {why}", path.display()));
    let bytes = std::fs::read(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            refuse("there is no model yet: finish the run with dpsgd resume".into())
        }
        _ => refuse(error.to_string()),
    })?;
    let weights =
        setup.network.from_safetensors(&bytes, str::to_string).map_err(|error| refuse(error.to_string()))?;
    setup.inputs.normalise_again(&setup.settings, saved_constants(directory)?.as_ref())?;
    let clip = metrics::read(directory)?.last().map_or(setup.plan.config().clipping.start, |last| last.clip);
    let seen = evaluation::evaluate(
        &setup.network,
        &setup.inputs.split.test,
        &weights,
        setup.settings.group_size.unwrap_or(1),
        clip,
        setup.plan.threads(),
    );
    let facts = setup.facts();
    let account = facts.account(&setup.settings, book.charged)?;
    let note = facts.note(&setup.settings);
    let mut told = json::account(&account);
    let value = json!({
        "test_accuracy": seen.accuracy,
        "test_loss": seen.loss,
        "test_clipping_fraction": seen.clipped,
        "test_samples": setup.inputs.split.test.len(),
        "guarantees": told["guarantees"].take(),
        "refused": told["refused"].take(),
        "private": note.is_none(),
        "note": note,
        "uncovered": facts.uncovered,
    });
    let accuracy = match seen.accuracy {
        Some(accuracy) => format!("test accuracy {:.2} %, ", 100.0 * accuracy),
        None => String::new(),
    };
    let mut text = format!("{} on {}: {accuracy}test loss {:.4}\n", facts.net, facts.data, seen.loss);
    for given in &account.guarantees {
        text.push_str(&format!(
            "ε ≤ {} at δ = {} against {}, certified\n",
            up(given.answer.upper, 6),
            number(setup.budget.delta),
            subscript(given.adversary)
        ));
    }
    if let Some(note) = note {
        text.push_str(&format!("but the run is {note}\n"));
    }
    Ok((value, text))
}

/// `dpsgd report`: writes the report of a run again, from its directory alone.
pub fn reported(directory: &Path) -> Result<PathBuf, Failure> {
    let settings = config(directory)?;
    let facts = Facts::read(directory)?;
    let book = Book::read(directory, &settings, &facts)?;
    let account = facts.account(&settings, book.charged)?;
    let path = directory.join(REPORT);
    replace(&path, page(directory, &settings, &facts, &account, &book)?.as_bytes())?;
    Ok(path)
}

fn page(
    directory: &Path,
    settings: &TrainSettings,
    facts: &Facts,
    account: &Report,
    book: &Book,
) -> Result<String, Failure> {
    let metrics = metrics::read(directory)?;
    let resumed = match book.resumes {
        0 => "never".to_string(),
        1 => "once".to_string(),
        times => format!("{times} times"),
    };
    let done = metrics.last().map_or(0, |last| last.updates);
    let ledger = vec![
        ("Rounds charged", book.charged.to_string()),
        ("Rounds whose update is in the model", done.to_string()),
        ("Rounds charged and lost", book.charged.saturating_sub(done).to_string()),
        ("Resumed after a crash", resumed),
    ];
    Page {
        heading: format!("{} on {}", title(&facts.net), title(&facts.data)),
        note: facts.note(settings),
        seeded: settings.seed.is_some(),
        ending: (!directory.join(SUMMARY).is_file())
            .then(|| "This run is not at its end: dpsgd resume goes on with it.".to_string()),
        account,
        noise: settings.noise_kind(),
        settings: facts.rows(settings, account),
        metrics: &metrics,
        ledger,
        command: settings.command()?,
    }
    .html()
}

/// A name as it is written in a heading.
fn title(name: &str) -> &str {
    match name {
        "lenet5" => "LeNet-5",
        "paper-cnn" => "The CNN of the paper",
        "mlp" => "A multilayer perceptron",
        "logistic" => "Logistic regression",
        "mnist" => "MNIST",
        "fashion-mnist" => "Fashion-MNIST",
        "cifar10" => "CIFAR-10",
        "adult" => "Adult",
        other => other,
    }
}
