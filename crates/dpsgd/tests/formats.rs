//! Runs on arrays, Parquet and folders of images, from training to prediction.

use std::fs;
use std::path::{Path, PathBuf};

use dpsgd::{Prepared, RawSettings, SavedRun};

/// A `.npy` file of bytes, as NumPy writes it.
fn npy(shape: &str, values: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), values].concat()
}

/// `count` images of 6 × 6 pixels, dark with label 0 or bright with label 1, no two alike.
fn arrays(directory: &Path, name: &str, first: usize, count: usize) -> PathBuf {
    let pixel = |i: usize, p: usize| (((first + i) * 31 + p * 17 + (first + i) * p) % 90) as u8;
    let bright = |i: usize| if i % 2 == 1 { 160 } else { 0 };
    let images: Vec<u8> = (0..count).flat_map(|i| (0..36).map(move |p| pixel(i, p) + bright(i))).collect();
    let labels: Vec<u8> = (0..count).map(|i| (i % 2) as u8).collect();
    let path = directory.join(format!("{name}.npy"));
    fs::write(&path, npy(&format!("({count}, 6, 6)"), &images)).unwrap();
    fs::write(directory.join(format!("{name}.labels.npy")), npy(&format!("({count},)"), &labels)).unwrap();
    path
}

fn settings(directory: &Path) -> RawSettings {
    RawSettings {
        data: Some(arrays(directory, "train", 0, 600).display().to_string()),
        test: Some(arrays(directory, "test", 1000, 100)),
        classes: vec!["dark".into(), "bright".into()],
        net: Some("logistic".into()),
        groups: Some(100),
        epochs: Some(4),
        sigma: Some(1.0),
        clip: Some(1.0),
        step: Some(0.2),
        seed: Some(5),
        ledger: Some("none".into()),
        ..RawSettings::default()
    }
}

#[test]
fn arrays_are_trained_evaluated_and_predicted() {
    let directory = tempfile::tempdir().unwrap();
    let raw = RawSettings { mean: vec![0.5], std: vec![0.3], ..settings(directory.path()) };
    let out = directory.path().join("run");
    let prepared = Prepared::new(&raw, &mut ()).unwrap();
    assert_eq!(prepared.settings.samples, Some(600));
    let outcome = prepared.start(Some(out.clone())).unwrap().train(&mut ()).unwrap();
    assert!(outcome.summary["test_accuracy"].as_f64().unwrap() > 0.9, "{}", outcome.statement);
    assert_eq!(outcome.summary["normalisation"]["mean"][0], 0.5);

    // Everything that is needed is in the directory.
    let run = SavedRun::open(&out).unwrap();
    assert_eq!((run.raw().classes.clone(), run.raw().mean.clone()), (raw.classes.clone(), vec![0.5]));
    let again = run.evaluate(None).unwrap();
    assert_eq!(again.json()["test_accuracy"], outcome.summary["test_accuracy"]);
    let other = arrays(directory.path(), "other", 3000, 20);
    assert!(run.evaluate_on(Some(&other), None).unwrap().json()["test_accuracy"].as_f64().unwrap() > 0.9);
    fs::remove_file(directory.path().join("other.labels.npy")).unwrap();
    let found = run.predict_file(&other, 1).unwrap();
    assert_eq!((found.rows.len(), found.classes.clone().unwrap()), (20, raw.classes));
    assert!(found.csv().starts_with("row,label,p(dark),p(bright)\n1,dark,"), "{}", found.csv());
    assert!(run.verify().unwrap().findings.is_empty());
    // The same pixels with a declared range are the same inputs, so the same training.
    let ranged = RawSettings { value_range: vec![0.0, 255.0], ..settings(directory.path()) };
    let ranged = RawSettings { mean: vec![0.5], std: vec![0.3], ..ranged };
    let second =
        Prepared::new(&ranged, &mut ()).unwrap().start(Some(directory.path().join("ranged"))).unwrap();
    let second = second.train(&mut ()).unwrap();
    for (a, b) in outcome.weights.iter().zip(&second.weights) {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
}

#[test]
fn what_must_be_public_is_asked_for_before_anything_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let good = settings(directory.path());
    let refused = |raw: RawSettings| match Prepared::new(&raw, &mut ()) {
        Ok(_) => panic!("accepted"),
        Err(error) => error.to_string(),
    };
    assert!(refused(RawSettings { classes: vec![], ..good.clone() }).contains("--classes"));
    assert!(refused(RawSettings { mean: vec![0.5], ..good.clone() }).contains("mean, std"));
    assert!(refused(RawSettings { value_range: vec![1.0], ..good.clone() }).contains("value-range"));
    let text = refused(RawSettings { test: good.data.clone().map(PathBuf::from), ..good.clone() });
    assert!(text.contains("same samples"), "{text}");
    let known = RawSettings { data: Some("mnist".into()), test: None, ..good.clone() };
    assert!(known.resolve().unwrap_err().to_string().contains("classes: only with data of your own"));
    let missing = RawSettings { data: Some("nowhere/photos".into()), ..good };
    assert!(refused(missing).contains("nor a file or folder that exists"));
}

/// The images of the data crate's tests, four times each: a folder is a data set like any other.
#[test]
fn a_folder_of_images_is_trained_and_its_files_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tests/files");
    for (class, name) in [("red", "halves.png"), ("grey", "grey.png")] {
        let place = directory.path().join("photos").join(class);
        fs::create_dir_all(&place).unwrap();
        for copy in 0..20 {
            fs::copy(files.join(name), place.join(format!("{copy}.png"))).unwrap();
        }
    }
    let raw = RawSettings {
        data: Some(directory.path().join("photos").display().to_string()),
        test: None,
        classes: vec!["red".into(), "grey".into()],
        image_size: Some("6x6".into()),
        // All of them in every round, which is quick to account for.
        groups: Some(40),
        epochs: Some(3),
        ..settings(directory.path())
    };
    let out = directory.path().join("run");
    let prepared = Prepared::new(&raw, &mut ()).unwrap();
    assert_eq!((prepared.settings.samples, prepared.inputs.split.train.shape()), (Some(40), [6, 6, 3]));
    prepared.start(Some(out.clone())).unwrap().train(&mut ()).unwrap();
    let run = SavedRun::open(&out).unwrap();
    let found = run.predict_file(&directory.path().join("photos"), 1).unwrap();
    assert!(found.csv().lines().nth(1).unwrap().starts_with("grey/0.png,"), "{}", found.csv());
    assert_eq!(found.json()["files"][39], "red/9.png");
}
