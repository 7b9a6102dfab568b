//! Data sets for training: MNIST, Fashion-MNIST, CIFAR-10, Adult and any CSV, served one sample at a
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
//! A table needs a [`schema::Schema`]: which categories and which range a column has is public knowledge,
//! written down before the file is looked at, because what occurs in a private file is private.
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
//! | [`idx`], [`cifar`], [`table`], [`adult`] | the formats |
//! | [`schema`] | what the columns of a table mean |
//! | [`normalise`] | public and private constants |
//! | [`release`] | the guarantee of the private ones |
//!
//! Nothing is printed; every error is one line that says what to do. Damaged, truncated and hostile files are
//! errors: memory grows with what is read, never with what a header claims.

pub mod adult;
pub mod cifar;
pub mod dataset;
pub mod error;
pub mod get;
pub mod idx;
pub mod known;
pub mod normalise;
mod raw;
pub mod release;
pub mod schema;
pub mod table;

pub use dataset::{Dataset, Inputs, Split, Targets};
pub use error::DataError;
pub use get::get;
pub use known::{Known, find, load};
pub use normalise::{Divisor, Normalisation, Private};
pub use release::Release;
