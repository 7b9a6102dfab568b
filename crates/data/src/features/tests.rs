use super::*;
use crate::dataset::Targets;
use crate::normalise::{Divisor, Normalisation, Private};

fn set(shape: [usize; 3], samples: usize) -> Dataset {
    let numbers = shape.iter().product::<usize>() * samples;
    let bytes = (0..numbers).map(|i| (i * i * 37 % 251) as u8).collect();
    let targets = Targets::Classes { labels: vec![0; samples], classes: 1 };
    Dataset::new(Inputs::Bytes(bytes), targets, shape).unwrap()
}

fn served(set: &Dataset, index: usize) -> Vec<f32> {
    let mut out = vec![0.0; set.input_len()];
    set.copy_input(index, &mut out);
    out
}

#[test]
fn both_sets_are_transformed_whatever_the_threads() {
    let split = Split { train: set([16, 16, 1], 45), test: set([16, 16, 1], 2) };
    let one = of(&split, Features::Scattering, 1).unwrap();
    assert_eq!(one.train.shape(), [4, 4, 81]);
    assert_eq!(Features::Scattering.shape([16, 16, 1]).unwrap(), [4, 4, 81]);
    assert_eq!((one.train.len(), one.test.len()), (45, 2));
    assert_eq!(of(&split, Features::Scattering, 3).unwrap(), one);
}

/// The guarantee: the features of a sample do not change with the samples around it.
#[test]
fn a_sample_has_the_features_it_has_alone() {
    let all = set([16, 16, 3], 37);
    let split = Split { train: all.clone(), test: set([16, 16, 3], 1) };
    for features in [Features::Scattering, Features::RandomFilters, Features::RandomFiltersMirrored] {
        let together = of(&split, features, 2).unwrap().train;
        for i in (0..all.len()).step_by(if features == Features::Scattering { 1 } else { 9 }) {
            let alone = Split { train: all.part(i..i + 1).unwrap(), test: split.test.clone() };
            let alone = of(&alone, features, 1).unwrap().train;
            assert_eq!(served(&alone, 0), served(&together, i), "sample {i}");
        }
    }
}

/// One kind: mean 0 and variance 1 over all places and filters of an image.
#[test]
fn random_filters_are_normalised_in_every_image() {
    let split = Split { train: set([16, 16, 3], 3), test: set([16, 16, 3], 1) };
    for (features, places) in [(Features::RandomFilters, 16), (Features::RandomFiltersMirrored, 8)] {
        let made = of(&split, features, 1).unwrap().train;
        assert_eq!(features.shape([16, 16, 3]).unwrap(), made.shape());
        assert_eq!(made.input_len(), places * 1024);
        for image in 0..3 {
            let values = served(&made, image);
            let moment = |power: i32| values.iter().map(|x| f64::from(*x).powi(power)).sum::<f64>();
            let count = values.len() as f64;
            assert!(moment(1).abs() < 1e-3 * count && (moment(2) / count - 1.0).abs() < 1e-3, "{image}");
        }
    }
}

/// Features of one name are never taken from the file of another.
#[test]
fn every_transform_has_its_own_file() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::new(directory.path());
    let split = Split { train: set([16, 16, 1], 2), test: set([16, 16, 1], 3) };
    for features in [Features::RandomFilters, Features::RandomFiltersMirrored, Features::Scattering] {
        assert!(!cached(&split, features, 1, &cache).unwrap().found);
        let again = cached(&split, features, 1, &cache).unwrap();
        assert!(again.found);
        assert_eq!(again.split, of(&split, features, 1).unwrap());
    }
}

/// A vector of the same numbers, from the same file on disk.
#[test]
fn flat_features_are_the_same_numbers_with_a_channel_for_each() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::new(directory.path());
    let split = Split { train: set([16, 16, 1], 20), test: set([16, 16, 1], 3) };
    let planes = cached(&split, Features::Scattering, 1, &cache).unwrap().split.train;
    let taken = cached(&split, Features::ScatteringFlat, 1, &cache).unwrap();
    assert!(taken.found);
    assert_eq!(taken.split, of(&split, Features::ScatteringFlat, 2).unwrap());
    let flat = taken.split.train;
    assert_eq!(flat.shape(), [1, 1, 4 * 4 * 81]);
    assert_eq!(Features::ScatteringFlat.shape([16, 16, 1]).unwrap(), flat.shape());
    for i in 0..flat.len() {
        assert_eq!(served(&flat, i), served(&planes, i), "sample {i}");
    }
}

/// The normalisation by its formula, kind by kind, over the image and its colours.
#[test]
fn every_kind_is_brought_to_mean_0_and_variance_1_in_every_image() {
    let shape = [16, 16, 3];
    let split = Split { train: set(shape, 3), test: set(shape, 1) };
    let made = of(&split, Features::Scattering, 1).unwrap().train;
    let scattering = Scattering::new(shape, Level::best()).unwrap();
    for image in 0..3 {
        let mut raw = vec![0.0; 16 * 243];
        scattering.transform(&served(&split.train, image), &mut raw);
        let features = served(&made, image);
        for kind in 0..11 {
            let channels = if kind == 0 { 0..1 } else { 8 * kind - 7..8 * kind + 1 };
            let places: Vec<usize> = (0..raw.len()).filter(|i| channels.contains(&(i % 243 % 81))).collect();
            let values: Vec<f64> = places.iter().map(|&i| f64::from(raw[i])).collect();
            assert_eq!(values.len(), 16 * 3 * channels.len());
            let count = values.len() as f64;
            let mean = values.iter().sum::<f64>() / count;
            let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
            for (&i, x) in places.iter().zip(&values) {
                let (ours, expected) = (f64::from(features[i]), (x - mean) / (variance + 1e-5).sqrt());
                // Half precision is 2⁻¹¹ of a number, and single precision came before it.
                assert!((ours - expected).abs() < 6e-4 * expected.abs() + 1e-4, "{kind}: {ours}, {expected}");
            }
        }
    }
}

#[test]
fn the_cache_gives_the_same_bits_and_a_damaged_one_is_not_believed() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::new(directory.path().join("kept"));
    let split = Split { train: set([16, 16, 1], 20), test: set([16, 16, 1], 3) };
    let plain = of(&split, Features::Scattering, 2).unwrap();
    for found in [false, true] {
        let taken = cached(&split, Features::Scattering, 2, &cache).unwrap();
        assert_eq!((taken.found, taken.not_kept), (found, None));
        assert_eq!(taken.split, plain);
    }
    let files: Vec<_> =
        std::fs::read_dir(cache.directory()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 2);
    #[cfg(unix)]
    for (path, mode) in files.iter().map(|file| (file.as_path(), 0o600)).chain([(cache.directory(), 0o700)]) {
        let permissions = std::fs::metadata(path).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&permissions) & 0o777, mode);
    }
    for damage in [|bytes: &mut Vec<u8>| bytes[100] ^= 1, |bytes: &mut Vec<u8>| bytes.truncate(200)] {
        for file in &files {
            let mut bytes = std::fs::read(file).unwrap();
            damage(&mut bytes);
            std::fs::write(file, bytes).unwrap();
        }
        let taken = cached(&split, Features::Scattering, 2, &cache).unwrap();
        assert!(!taken.found);
        assert_eq!(taken.split, plain);
    }
    // One pixel more, and they are the features of another set.
    let mut other = split.clone();
    let Inputs::Bytes(bytes) = other.train.inputs() else { unreachable!() };
    let mut bytes = bytes.clone();
    bytes[0] ^= 1;
    other.train = other.train.with_inputs(Inputs::Bytes(bytes), [16, 16, 1]).unwrap();
    assert!(!cached(&other, Features::Scattering, 2, &cache).unwrap().found);
}

#[test]
fn a_cache_that_cannot_be_written_does_not_stop_anything() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let split = Split { train: set([16, 16, 1], 2), test: set([16, 16, 1], 1) };
    let taken = cached(&split, Features::Scattering, 1, &Cache::new(&file)).unwrap();
    assert!(taken.not_kept.unwrap().contains("file"));
    assert_eq!(taken.split, of(&split, Features::Scattering, 1).unwrap());
}

#[test]
fn features_are_normalised_within_a_public_reach() {
    let split = Split { train: set([16, 16, 1], 40), test: set([16, 16, 1], 1) };
    let mut made = of(&split, Features::Scattering, 2).unwrap();
    let plain = served(&made.train, 3);
    made.normalise(&Normalisation::None, &mut |_| panic!("nothing is drawn")).unwrap();
    assert_eq!(served(&made.train, 3), plain, "none leaves features as they are");
    let private = Normalisation::Private(Private { mu: 500.0, divisor: Divisor::Expected(40.0) });
    // Without noise the constants are those of the values within the reach.
    let release = made.normalise(&private, &mut |_| 0.0).unwrap().unwrap();
    assert_eq!(release.sensitivity(), (1.25_f64 * 81.0).sqrt() * (1.0 + 2e-6));
    for channel in [0, 5, 80] {
        let raw: Vec<f64> = (0..40)
            .flat_map(|i| {
                let mut fresh = made.train.clone();
                let (mean, std) = fresh.plain();
                fresh.standardise(&[mean; 81], &[std; 81]);
                served(&fresh, i).into_iter().skip(channel).step_by(81).map(f64::from).collect::<Vec<_>>()
            })
            .map(|x| (x / 8.0 + 0.5).clamp(0.0, 1.0))
            .collect();
        let mean = raw.iter().sum::<f64>() / raw.len() as f64;
        let std = (raw.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / raw.len() as f64).sqrt().max(0.01);
        assert!((f64::from(release.mean()[channel]) - mean).abs() < 1e-5, "{channel}");
        assert!((f64::from(release.std()[channel]) - std).abs() < 1e-4, "{channel}");
        let at = served(&made.train, 3)[channel];
        let expected = ((f64::from(plain[channel]) / 8.0 + 0.5) - mean) / std;
        assert!((f64::from(at) - expected).abs() < 2e-2, "{channel}: {at} for {expected}");
    }
}

#[test]
fn an_unsuitable_image_is_refused() {
    let split = Split { train: set([15, 16, 1], 1), test: set([15, 16, 1], 1) };
    let error = of(&split, Features::Scattering, 1).unwrap_err().to_string();
    assert!(error.starts_with("features = scattering: an image of 15 × 16"), "{error}");
    let split = Split { train: set([8, 16, 1], 1), test: set([8, 16, 1], 1) };
    let error = of(&split, Features::RandomFilters, 1).unwrap_err().to_string();
    assert!(error.starts_with("features = random-filters: an image of 8 × 16"), "{error}");
}
