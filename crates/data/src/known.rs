//! The data sets known by name: their files, checksums, and where to look for them.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::cifar::{self, Batches};
use crate::dataset::{Dataset, Split};
use crate::error::DataError;
use crate::normalise::Normalisation;
use crate::{adult, idx, raw};

/// The environment variable that names a directory to look in.
pub const VARIABLE: &str = "DPSGD_DATA";

/// A data set known by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Known {
    /// MNIST (LeCun, Cortes, Burges): 60,000 and 10,000 digits of 28 × 28; shipped.
    Mnist,
    /// Fashion-MNIST (Xiao, Rasul, Vollgraf): the same sizes, with items of clothing.
    FashionMnist,
    /// CIFAR-10 (Krizhevsky): 50,000 and 10,000 colour images of 32 × 32.
    Cifar10,
    /// Adult (Becker, Kohavi): 32,561 and 16,281 people; see [`crate::adult`].
    Adult,
}

/// A published file; its size and checksum are those of the unzipped bytes.
pub(crate) struct KnownFile {
    pub(crate) name: &'static str,
    bytes: u64,
    sha256: &'static str,
}

const fn file(name: &'static str, bytes: u64, sha256: &'static str) -> KnownFile {
    KnownFile { name, bytes, sha256 }
}

const MNIST: [KnownFile; 4] = [
    file(idx::FILES[0], 47_040_016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    file(idx::FILES[1], 60_008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    file(idx::FILES[2], 7_840_016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    file(idx::FILES[3], 10_008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
];
const FASHION_MNIST: [KnownFile; 4] = [
    file(idx::FILES[0], 47_040_016, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
    file(idx::FILES[1], 60_008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
    file(idx::FILES[2], 7_840_016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
    file(idx::FILES[3], 10_008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
];
const CIFAR10: [KnownFile; 6] = [
    file(cifar::TRAIN[0], 30_730_000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    file(cifar::TRAIN[1], 30_730_000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
    file(cifar::TRAIN[2], 30_730_000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
    file(cifar::TRAIN[3], 30_730_000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
    file(cifar::TRAIN[4], 30_730_000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
    file(cifar::TEST, 30_730_000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
];
const ADULT: [KnownFile; 2] = [
    file("adult.data", 3_974_305, "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    file("adult.test", 2_003_153, "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
];

impl Known {
    /// All of them.
    pub const ALL: [Known; 4] = [Known::Mnist, Known::FashionMnist, Known::Cifar10, Known::Adult];

    /// Its name on the command line and that of its directory.
    pub fn name(self) -> &'static str {
        match self {
            Known::Mnist => "mnist",
            Known::FashionMnist => "fashion-mnist",
            Known::Cifar10 => "cifar10",
            Known::Adult => "adult",
        }
    }

    /// The published number of training samples.
    pub fn samples(self) -> u64 {
        match self {
            Known::Mnist | Known::FashionMnist => 60_000,
            Known::Cifar10 => 50_000,
            Known::Adult => 32_561,
        }
    }

    pub(crate) fn files(self) -> &'static [KnownFile] {
        match self {
            Known::Mnist => &MNIST,
            Known::FashionMnist => &FASHION_MNIST,
            Known::Cifar10 => &CIFAR10,
            Known::Adult => &ADULT,
        }
    }

    /// What to do when it is missing or damaged.
    pub(crate) fn advice(self) -> String {
        match self {
            Known::Mnist => {
                "it is shipped in data/mnist of the source checkout: restore it from there".to_string()
            }
            _ => format!("run `dpsgd data get {self}`"),
        }
    }

    /// The usual normalisation, from constants in public use for years. They were once computed from these
    /// data sets, so they are legitimate as constants only: to compute them from data that need protection,
    /// use [`Normalisation::Private`].
    pub fn normalisation(self) -> Normalisation {
        let (mean, std): (&[f32], &[f32]) = match self {
            Known::Mnist => (&[0.1307], &[0.3081]),
            Known::FashionMnist => (&[0.2860], &[0.3530]),
            Known::Cifar10 => (&[0.4914, 0.4822, 0.4465], &[0.2470, 0.2435, 0.2616]),
            Known::Adult => return Normalisation::None,
        };
        Normalisation::Public { mean: mean.to_vec(), std: std.to_vec() }
    }

    /// Reads it from the directory that holds its files, and checks every file against its published
    /// SHA-256. Inputs are served from 0 to 1 until [`Split::normalise`] is called.
    pub fn read(self, directory: &Path) -> Result<Split, DataError> {
        let files = self.files();
        let images = |images: &KnownFile, labels: &KnownFile| {
            let read = |file: &KnownFile| {
                let (path, bytes) = file.read(directory)?;
                // The checksum covers the whole file; only its parts are kept.
                let sum = raw::sha256(&bytes);
                let idx = idx::parse(&path, bytes)?;
                file.check(&path, sum)?;
                Ok::<_, DataError>((path, idx))
            };
            idx::dataset(read(images)?, read(labels)?, 10)
        };
        let read = || match self {
            Known::Mnist | Known::FashionMnist => {
                idx::split(images(&files[0], &files[1])?, images(&files[2], &files[3])?, directory)
            }
            Known::Cifar10 => {
                let batches = |files: &[KnownFile]| {
                    let mut batches = Batches::default();
                    for file in files {
                        let (path, bytes) = file.read_checked(directory)?;
                        batches.add(&path, &bytes)?;
                    }
                    batches.dataset()
                };
                Ok(Split { train: batches(&files[..5])?, test: batches(&files[5..])? })
            }
            Known::Adult => {
                let table = |file: &KnownFile| -> Result<Dataset, DataError> {
                    let (path, bytes) = file.read_checked(directory)?;
                    adult::parse(&path, &bytes)
                };
                Ok(Split { train: table(&files[0])?, test: table(&files[1])? })
            }
        };
        read().map_err(|error| DataError::Known { source: Box::new(error), advice: self.advice() })
    }

    /// Checks every file in a directory against its published checksum.
    pub fn verify(self, directory: &Path) -> Result<(), DataError> {
        self.files().iter().try_for_each(|file| file.read_checked(directory).map(|_| ()))
    }
}

impl KnownFile {
    /// The file, unzipped or zipped.
    pub(crate) fn path(&self, directory: &Path) -> Option<PathBuf> {
        [self.name.to_string(), format!("{}.gz", self.name)]
            .into_iter()
            .map(|name| directory.join(name))
            .find(|path| path.is_file())
    }

    fn read(&self, directory: &Path) -> Result<(PathBuf, Vec<u8>), DataError> {
        let path = self.path(directory).unwrap_or_else(|| directory.join(self.name));
        let bytes = raw::read(&path, self.bytes)?;
        Ok((path, bytes))
    }

    fn check(&self, path: &Path, found: String) -> Result<(), DataError> {
        if found == self.sha256 {
            return Ok(());
        }
        Err(DataError::Checksum { path: path.to_path_buf(), found, expected: self.sha256 })
    }

    fn read_checked(&self, directory: &Path) -> Result<(PathBuf, Vec<u8>), DataError> {
        let (path, bytes) = self.read(directory)?;
        if (bytes.len() as u64) < self.bytes {
            let (found, expected) = (bytes.len() as u64, u128::from(self.bytes));
            return Err(DataError::Truncated { path, found, expected });
        }
        self.check(&path, raw::sha256(&bytes))?;
        Ok((path, bytes))
    }
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Known {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Self, DataError> {
        let known = Known::ALL.into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| DataError::Unknown { given: name.to_string() })
    }
}

/// The directory that holds a known data set.
///
/// With a directory given: its subdirectory named after the set, or the directory itself, and nowhere else.
/// Otherwise: the subdirectory of that name in the directory of the environment variable `DPSGD_DATA`, then
/// in `data` of the current directory and of its parents, then in `data` of the source checkout this was
/// built from. The first place with all files wins; [`Known::read`] checks the checksums.
pub fn find(known: Known, directory: Option<&Path>) -> Result<PathBuf, DataError> {
    match directory {
        Some(directory) => {
            let places = [directory.join(known.name()), directory.to_path_buf()];
            search(known, &places, directory.display().to_string())
        }
        None => {
            let variable = env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
            let set = match &variable {
                Some(place) => format!("{VARIABLE} = {}", place.display()),
                None => format!("{VARIABLE}, which is not set"),
            };
            let searched = format!("`data` here, above or in the source checkout, nor in {set}");
            search(known, &usual_places(known, variable, env::current_dir().ok()), searched)
        }
    }
}

/// [`find`]s a known data set and [reads](Known::read) it.
pub fn load(known: Known, directory: Option<&Path>) -> Result<Split, DataError> {
    known.read(&find(known, directory)?)
}

fn usual_places(known: Known, variable: Option<PathBuf>, current: Option<PathBuf>) -> Vec<PathBuf> {
    let above =
        current.iter().flat_map(|current| current.ancestors()).map(|directory| directory.join("data"));
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data");
    variable.into_iter().chain(above).chain([checkout]).map(|place| place.join(known.name())).collect()
}

fn search(known: Known, places: &[PathBuf], searched: String) -> Result<PathBuf, DataError> {
    let mut partial = None;
    for place in places {
        let missing = known.files().iter().find(|file| file.path(place).is_none());
        let any = known.files().iter().any(|file| file.path(place).is_some());
        match missing {
            None => return Ok(place.clone()),
            Some(file) if any => partial = partial.or(Some((place, file.name))),
            Some(_) => {}
        }
    }
    if let Some((directory, name)) = partial {
        let why = format!("{name} is missing");
        let source = Box::new(DataError::Content { path: directory.clone(), why });
        return Err(DataError::Known { source, advice: known.advice() });
    }
    Err(DataError::NotFound { set: known.name(), searched, advice: known.advice() })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn names_are_read_back() {
        for known in Known::ALL {
            assert_eq!(known.name().parse::<Known>().unwrap(), known);
        }
        let error = "imagenet".parse::<Known>().unwrap_err().to_string();
        assert!(error.starts_with("data set \"imagenet\" is not known: mnist, "), "{error}");
    }

    #[test]
    fn the_first_complete_place_wins_and_a_missing_file_is_named() {
        let root = tempfile::tempdir().unwrap();
        let [half, whole] = ["half", "whole/adult"].map(|name| root.path().join(name));
        for (directory, files) in [(&half, &ADULT[..1]), (&whole, &ADULT[..])] {
            fs::create_dir_all(directory).unwrap();
            for file in files {
                fs::write(directory.join(file.name), "").unwrap();
            }
        }
        let root = root.path();
        let places = usual_places(Known::Adult, Some(root.join("x")), Some(root.join("y/z")));
        let expected =
            ["x/adult", "y/z/data/adult", "y/data/adult", "data/adult"].map(|name| root.join(name));
        assert_eq!(places[..4], expected);
        assert!(places.last().unwrap().ends_with("../../data/adult"));

        let search = |known, places: &[&PathBuf]| {
            let places: Vec<PathBuf> = places.iter().copied().cloned().collect();
            search(known, &places, "there".to_string())
        };
        assert_eq!(search(Known::Adult, &[&half, &whole]).unwrap(), whole);
        let error = search(Known::Adult, &[&half]).unwrap_err().to_string();
        assert!(error.ends_with("half: adult.test is missing; run `dpsgd data get adult`"), "{error}");
        let error = search(Known::Cifar10, &[&whole]).unwrap_err().to_string();
        assert_eq!(error, "cifar10 is not in there; run `dpsgd data get cifar10`");

        assert_eq!(find(Known::Adult, Some(&whole)).unwrap(), whole);
        assert_eq!(find(Known::Adult, Some(&root.join("whole"))).unwrap(), whole);
        assert!(find(Known::Mnist, Some(root)).is_err(), "a directory that is given is the only one");
    }
}
