//! The proof that a state change may be acknowledged.

use std::fmt;

/// Proof that the policy's barrier for a state change completed. A reply that acknowledges a
/// change is built only with one, and only this crate can make one:
///
/// ```compile_fail,E0451
/// // The field is private: no other crate can write this down.
/// let forged = durability::Receipt { private: () };
/// ```
///
/// ```compile_fail,E0599
/// // Nor is there any way to get a second one from a first.
/// fn twice(one: durability::Receipt) -> (durability::Receipt, durability::Receipt) {
///     (one.clone(), one)
/// }
/// ```
///
/// ```
/// // The same shape compiles as soon as nothing is forged.
/// fn pass_on(one: durability::Receipt) -> durability::Receipt {
///     one
/// }
/// ```
#[must_use = "a success reply needs the receipt of its barrier"]
pub struct Receipt {
    private: (),
}

impl Receipt {
    pub(crate) fn new() -> Self {
        Self { private: () }
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let () = self.private;
        f.write_str("Receipt")
    }
}
