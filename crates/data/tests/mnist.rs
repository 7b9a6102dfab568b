//! The shipped MNIST, unmodified.

use std::fs;
use std::path::Path;

use dpsgd_data::{Divisor, Inputs, Known, Normalisation, Private, find, load};

fn shipped() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/mnist")
}

#[test]
fn counts_shape_labels_and_pixels() {
    let split = load(Known::Mnist, Some(&shipped())).unwrap();
    for (set, count, labels) in
        [(&split.train, 60_000, [5, 0, 4, 1, 9, 2, 1, 3]), (&split.test, 10_000, [7, 2, 1, 0, 4, 1, 4, 9])]
    {
        assert_eq!((set.len(), set.shape(), set.classes()), (count, [28, 28, 1], Some(10)));
        let first: Vec<u32> = (0..8).filter_map(|index| set.label(index)).collect();
        assert_eq!(first, labels);
    }
    // The 5 has its top stroke in row 5; its first dark pixels are 3, 18, 18, 18, 126.
    let mut input = vec![0.0; 784];
    split.train.copy_input(0, &mut input);
    let row: Vec<u8> = input[5 * 28 + 12..][..5].iter().map(|value| (value * 255.0).round() as u8).collect();
    assert_eq!(row, [3, 18, 18, 18, 126]);
    assert!(input[..5 * 28 + 12].iter().all(|value| *value == 0.0));
}

#[test]
fn the_public_constants_are_those_of_the_data() {
    let split = load(Known::Mnist, Some(&shipped())).unwrap();
    let Inputs::Bytes(bytes) = split.train.inputs() else { panic!("images are bytes") };
    let count = bytes.len() as f64;
    let mean = bytes.iter().map(|byte| f64::from(*byte) / 255.0).sum::<f64>() / count;
    let square = bytes.iter().map(|byte| (f64::from(*byte) / 255.0).powi(2)).sum::<f64>() / count;
    let std = (square - mean * mean).sqrt();
    let Normalisation::Public { mean: public_mean, std: public_std } = Known::Mnist.normalisation() else {
        panic!("the constants are public")
    };
    assert!((f64::from(public_mean[0]) - mean).abs() < 5e-5 && (f64::from(public_std[0]) - std).abs() < 5e-5);

    // The private constants without noise are the same ones.
    let mut private = split;
    let setting = Normalisation::Private(Private { mu: 0.1, divisor: Divisor::Samples });
    let release = private.normalise(&setting, &mut |_| 0.0).unwrap().unwrap();
    assert!((f64::from(release.mean()[0]) - mean).abs() < 1e-6);
    assert!((f64::from(release.std()[0]) - std).abs() < 1e-6);
    // At µ = 0.1 the noise is 0.00017: it changes no digit that matters.
    assert!(release.mean_error() < 2e-4);
}

#[test]
fn found_without_being_told_where() {
    let found = find(Known::Mnist, None).unwrap();
    assert!(found.join("train-images-idx3-ubyte.gz").is_file());
}

#[test]
fn damaged_copies_are_refused_with_what_to_do() {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(shipped()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let labels = copy.path().join("t10k-labels-idx1-ubyte.gz");
    let original = fs::read(&labels).unwrap();
    let refused = || {
        let error = load(Known::Mnist, Some(copy.path())).unwrap_err().to_string();
        assert!(error.contains("t10k-labels") && error.ends_with("restore it from there"), "{error}");
        assert_eq!(error.lines().count(), 1);
        error
    };

    fs::write(&labels, &original[..2000]).unwrap();
    assert!(refused().contains("damaged or truncated gzip data"));
    fs::write(&labels, [&original[..], b"more"].concat()).unwrap();
    assert!(refused().contains("gzip"));
    fs::write(&labels, b"<html>not found</html>").unwrap();
    assert!(refused().contains("not an IDX file"));
    fs::remove_file(&labels).unwrap();
    assert!(refused().contains("is missing"));

    // One label changed: only the checksum can tell.
    let mut raw = vec![0; 10_008];
    raw[..8].copy_from_slice(&[0, 0, 8, 1, 0, 0, 39, 16]);
    let plain = copy.path().join("t10k-labels-idx1-ubyte");
    fs::write(&plain, &raw).unwrap();
    assert!(refused().contains("SHA-256 is "));
    fs::write(&plain, &raw[..10_000]).unwrap();
    assert!(refused().contains("truncated, 10000 bytes of 10008"));
    fs::write(&plain, vec![0; 20_000]).unwrap();
    assert!(refused().contains("more than the 10008 bytes"));
}
