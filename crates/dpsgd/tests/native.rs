//! A run of the native engine, read again: what it predicts is what was evaluated.

use std::path::Path;

use dpsgd::data::{Known, known};
use dpsgd::{Prepared, RawSettings, SavedRun};

#[test]
fn predictions_are_those_that_were_evaluated() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("native");
    let _ = std::fs::remove_dir_all(&path);
    let raw = RawSettings {
        net: Some("logistic".into()),
        epochs: Some(1),
        sigma: Some(1.0),
        seed: Some(5),
        ledger: Some("none".into()),
        ..Default::default()
    };
    let outcome =
        Prepared::new(&raw, &mut ()).unwrap().start(Some(path.clone())).unwrap().train(&mut ()).unwrap();
    let run = SavedRun::open(&path).unwrap();
    let evaluated = run.evaluate(Some(1)).unwrap().evaluation;
    assert_eq!(outcome.summary["test_accuracy"].as_f64(), evaluated.accuracy);

    let test = known::load(Known::Mnist, None).unwrap().test;
    let labels: Vec<_> = (0..test.len()).map(|i| test.label(i).unwrap() as usize).collect();
    let scores = run.predict(test, 1).unwrap();
    assert_eq!((scores.len(), scores[0].len()), (10_000, 10));
    assert!(scores.iter().all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-5));
    let best = |row: &Vec<f32>| (0..10).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
    let right = scores.iter().zip(&labels).filter(|(row, label)| best(row) == **label).count();
    assert_eq!(Some(right as f64 / 10_000.0), evaluated.accuracy);
    // The loss is that of the probabilities.
    let loss: f64 = scores.iter().zip(&labels).map(|(row, &label)| -f64::from(row[label]).ln()).sum();
    assert!((loss / 10_000.0 - evaluated.loss).abs() < 1e-4, "{} {}", loss / 10_000.0, evaluated.loss);

    // A temperature changes no prediction, and no other one has a smaller loss on the samples it was fitted on.
    let fitted = run.temperature(None, 1).unwrap();
    let loss_at = |temperature: f64| -> f64 {
        let test = known::load(Known::Mnist, None).unwrap().test;
        let scores = run.predict_at(temperature, test, 1).unwrap();
        assert_eq!(scores.iter().zip(&labels).filter(|(row, label)| best(row) == **label).count(), right);
        scores.iter().zip(&labels).map(|(row, &label)| -f64::from(row[label]).ln()).sum::<f64>() / 10_000.0
    };
    assert!(loss_at(fitted) < loss_at(1.02 * fitted) && loss_at(fitted) < loss_at(0.98 * fitted), "{fitted}");
    assert!(loss_at(fitted) <= evaluated.loss + 1e-6);
}

/// Samples in memory are trained without a test set, and never tested on themselves.
#[test]
fn samples_in_memory_need_no_test_set() {
    use dpsgd::data::{Dataset, Inputs, Targets};
    use dpsgd::inputs::RunData;

    let inputs: Vec<f32> = (0..400).map(|i| (i % 7) as f32 / 7.0).collect();
    let labels = (0..200).map(|i| (i % 2) as u32).collect();
    let train =
        Dataset::new(Inputs::Floats(inputs), Targets::Classes { labels, classes: 2 }, [1, 1, 2]).unwrap();
    assert!(RunData::in_memory("numbers", train.clone(), Some(train.clone())).is_err());

    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("in-memory");
    let _ = std::fs::remove_dir_all(&path);
    let raw = RawSettings {
        data: Some("numbers".into()),
        net: Some("logistic".into()),
        sampling: Some(dpsgd::privacy::mechanism::SamplingKind::Shuffle),
        groups: Some(20),
        epochs: Some(2),
        sigma: Some(1.0),
        ..Default::default()
    };
    let data = RunData::in_memory("numbers", train.clone(), None).unwrap();
    let run = Prepared::with(data, &raw, &mut ()).unwrap().start(Some(path.clone())).unwrap();
    let outcome = run.train(&mut ()).unwrap();
    assert!(outcome.summary["test_accuracy"].is_null());
    let saved = SavedRun::open(&path).unwrap();
    assert_eq!(saved.facts().unwrap().test_samples, 0);
    assert!(saved.verify().unwrap().findings.is_empty());
    assert_eq!(saved.predict(train, 1).unwrap().len(), 200);
}

/// The average is the model, the last iterate lies beside it, both are measured, and everything agrees.
#[test]
fn the_average_is_the_model_and_the_last_iterate_is_beside_it() {
    use dpsgd::settings::Choose;

    let raw = |choose, average: Option<&str>| RawSettings {
        net: Some("logistic".into()),
        epochs: Some(2),
        sigma: Some(1.0),
        seed: Some(5),
        ledger: Some("none".into()),
        average: average.map(str::to_string),
        choose,
        ..Default::default()
    };
    let train = |name: &str, raw: &RawSettings| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&path);
        let run = Prepared::new(raw, &mut ()).unwrap().start(Some(path.clone())).unwrap();
        (path, run.train(&mut ()).unwrap())
    };
    let read = |path: &Path, name: &str| std::fs::read(path.join(name)).unwrap();
    let (_, plain) = train("no-average", &raw(None, None));
    assert!(plain.summary["iterates"].is_null());
    for (choose, name, other) in
        [(None, "average", "last.safetensors"), (Some(Choose::Last), "last", "average.safetensors")]
    {
        let (path, outcome) = train(&format!("{name}-chosen"), &raw(choose, Some("tail:0.5")));
        let told = &outcome.summary["iterates"];
        assert_eq!((told["chosen"].as_str(), told["by"].as_str()), (Some(name), Some("rule")));
        assert_eq!(told["last"]["test_accuracy"], plain.summary["test_accuracy"], "w is what it would be");
        assert_eq!(told[name]["test_accuracy"], outcome.summary["test_accuracy"]);
        let saved = SavedRun::open(&path).unwrap();
        assert_eq!(saved.verify().unwrap().findings, []);
        assert_eq!(
            saved.evaluate(Some(1)).unwrap().evaluation.accuracy,
            told[name]["test_accuracy"].as_f64()
        );
        assert_ne!(read(&path, "model.safetensors"), read(&path, other));
        assert!(outcome.statement.contains(other), "{}", outcome.statement);
        assert_eq!(outcome.weights == plain.weights, choose == Some(Choose::Last));
        assert!(saved.page().unwrap().contains("Average of the iterates"));
    }
    let better = train("better-chosen", &raw(Some(Choose::Better), Some("ema:0.9"))).1;
    let told = &better.summary["iterates"];
    assert_eq!(told["by"], "public-test");
    assert!(better.statement.contains("reads too high"), "{}", better.statement);
    let reached = |which: &str| told[which]["test_accuracy"].as_f64().unwrap();
    assert_eq!(better.summary["test_accuracy"].as_f64(), Some(reached("last").max(reached("average"))));
}
