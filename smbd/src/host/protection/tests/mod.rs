//! Tests of the assessment: on trees that look like `/sys` and `/proc`, and on real loop devices.

use super::*;

mod loop_devices;
mod sysfs_trees;
