//! A success reply is built from one of these: the proof that a change may be acknowledged, or the
//! statement that nothing was changed.

use std::fmt;

/// Proof that the policy's barrier for a change completed. Only this crate can make one:
///
/// ```compile_fail,E0451
/// // The field is private, so no other crate can construct a receipt.
/// let forged = durability::Receipt { private: () };
/// ```
///
/// ```compile_fail,E0599
/// // A receipt cannot be duplicated either.
/// fn twice(one: durability::Receipt) -> (durability::Receipt, durability::Receipt) {
///     (one.clone(), one)
/// }
/// ```
///
/// ```compile_fail,E0277
/// // Nor can a request that changed nothing obtain one.
/// let forged: durability::Receipt = durability::Unchanged::because("nothing to do").into();
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
    pub(super) fn new() -> Self {
        Self { private: () }
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let () = self.private;
        f.write_str("Receipt")
    }
}

/// The statement that a successful request changed nothing on any disk. It proves nothing: the
/// caller is responsible for the reason that it gives.
#[derive(Debug)]
#[must_use = "a success reply is built from it"]
pub struct Unchanged {
    reason: &'static str,
}

impl Unchanged {
    /// States why nothing was changed.
    pub const fn because(reason: &'static str) -> Self {
        Self { reason }
    }

    /// Why nothing was changed.
    pub const fn reason(&self) -> &'static str {
        self.reason
    }
}

/// The two ways in which a request that may change the disk succeeds.
#[derive(Debug)]
#[must_use = "a success reply is built from it"]
pub enum Completion {
    /// The disk was changed, and the policy's barrier completed.
    Changed(Receipt),
    /// Nothing was changed.
    Unchanged(Unchanged),
}

impl From<Receipt> for Completion {
    fn from(receipt: Receipt) -> Self {
        Self::Changed(receipt)
    }
}

impl From<Unchanged> for Completion {
    fn from(unchanged: Unchanged) -> Self {
        Self::Unchanged(unchanged)
    }
}
