//! The schemas in `smbd/schema/` are those of the types.

#[path = "../../../crates/holdfast-verify/src/schemas.rs"]
mod schemas;

use self::schemas::is_in_file;
use super::*;

#[test]
fn the_schemas_are_those_of_the_types() {
    is_in_file::<StatusReport>("status");
    is_in_file::<Vec<ShareStatus>>("policy-show");
    is_in_file::<Explained>("policy-explain");
    is_in_file::<ClosedObjects>("close");
}
