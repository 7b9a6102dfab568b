//! No bytes make the decoder of pointers to large frames panic, and what it reads is what was written.
#![no_main]

use dpsgd_federated::wire::pointer::Pointer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(pointer) = Pointer::decode(bytes, 1 << 32) {
        assert_eq!(Pointer::decode(&pointer.encode(), 1 << 32).as_ref(), Some(&pointer));
        assert!(pointer.parts() <= 1 << 12);
    }
});
