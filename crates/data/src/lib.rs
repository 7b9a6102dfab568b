//! Data sets for training: MNIST, Fashion-MNIST, CIFAR-10, Adult, any table (CSV, Parquet), NumPy arrays and
//! folders of images, served one sample at a
//! time as `f32` with the channel last, and normalised by public constants or by private ones with their
//! cost.
//!
//! ```
//! use dpsgd_data::{Known, load};
//!
//! // MNIST is shipped; it is found from anywhere in the checkout and checked by SHA-256.
//! let mut split = load(Known::Mnist, None)?;
//! assert_eq!((split.train.len(), split.test.len()), (60_000, 10_000));
//! assert_eq!(split.train.shape(), [28, 28, 1]);
//!
//! // Constants that everybody knows cost nothing.
//! split.normalise(&Known::Mnist.normalisation(), &mut |_| unreachable!("no noise is drawn"))?;
//! let mut input = vec![0.0; split.train.input_len()];
//! split.train.copy_input(0, &mut input);
//! assert!((input[0] - (0.0 - 0.1307) / 0.3081).abs() < 1e-6);
//! assert_eq!(split.train.label(0), Some(5));
//! # Ok::<(), dpsgd_data::DataError>(())
//! ```
//!
//! A table needs a [`schema::Schema`]: the categories and the range of each column must be public knowledge,
//! declared before the file is read, because what occurs in a private file is private.
//!
//! ```
//! use dpsgd_data::schema::{Column, Schema};
//! use dpsgd_data::normalise::{Divisor, Normalisation, Private};
//! use dpsgd_data::table::{self, TestRows};
//!
//! let directory = tempfile::tempdir()?;
//! let path = directory.path().join("people.csv");
//! std::fs::write(&path, "age,job,income\n30,nurse,low\n?,\"smith, black\",high\n61,nurse,high\n")?;
//! let schema = Schema::new(
//!     Column::categorical("income", &["low", "high"]),
//!     vec![
//!         Column::numeric("age", 0.0, 100.0),
//!         Column::categorical("job", &["nurse", "smith, black", "cook"]),
//!     ],
//! );
//! let mut split = table::load(&path, &TestRows::Every(3), &schema)?;
//! let mut row = [0.0; 4];
//! split.train.copy_input(1, &mut row);
//! assert_eq!(row, [0.5, 0.0, 1.0, 0.0]); // no age: the middle of the range
//!
//! // Or with mean and variance from the training rows, noised; µ belongs into `RunConfig::releases`.
//! let private = Normalisation::Private(Private { mu: 0.1, divisor: Divisor::Samples });
//! let mut noise = |deviation: f64| (0.3 * deviation).round(); // the trainer's source of rounded Gaussians
//! let release = split.normalise(&private, &mut noise)?.expect("age is numeric");
//! assert_eq!(release.mu(1), 0.1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`dataset`] | samples in memory, [`Dataset`] and [`Split`] |
//! | [`known`] | the sets known by name: files, checksums, [`find`] and [`load`] |
//! | [`get`](mod@get) | fetching those that are not shipped |
//! | [`file`](mod@file) | any file or folder of one's own: which format it has |
//! | [`idx`], [`cifar`], [`table`], [`adult`], [`npy`], [`arrays`], [`folder`] | the formats |
//! | [`declared`] | what is public about images and arrays |
//! | [`schema`] | what the columns of a table mean |
//! | [`normalise`] | public and private constants |
//! | [`rows`] | what tells data sets apart, and whether two share samples |
//! | [`release`] | the guarantee of the private ones |
//! | `features`, `Labelled` | with the feature `engine`: image features, data sets for the engine |
//!
//! Nothing is printed; every error is one line that says what to do. Damaged, truncated and hostile files are
//! errors: memory grows with what is read, never with what a header claims.

pub mod adult;
pub mod arrays;
pub mod cifar;
pub mod dataset;
pub mod declared;
pub mod error;
#[cfg(feature = "engine")]
pub mod features;
pub mod file;
pub mod folder;
pub mod get;
mod half;
pub mod idx;
pub mod known;
pub mod normalise;
pub mod npy;
#[cfg(feature = "parquet")]
mod parquet;
mod raw;
mod records;
pub mod release;
pub mod rows;
#[cfg(feature = "engine")]
mod samples;
pub mod schema;
mod source;
pub mod table;

pub use dataset::{Dataset, Inputs, LIMIT, Split, Targets};
pub use declared::{Declared, ImageSize};
pub use error::DataError;
pub use get::get;
pub use half::Half;
pub use known::{Known, find, load};
pub use normalise::{Divisor, Normalisation, Private};
pub use release::Release;
#[cfg(feature = "engine")]
pub use samples::Labelled;
