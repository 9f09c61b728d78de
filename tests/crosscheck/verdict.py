"""Whether figures of the workbench and of other programs agree. Nothing here runs a server."""

# Of a hundred operations; every count ends somewhere in the load file.
PARTS_MAX = 1.0
# The ranges of a few rounds may miss each other by so much before the clients disagree about the servers.
GAP_MAX = 1.25
# The part of the workbench's rate that a mount in user space may have. It sends one request of 128 KiB at a time through
# one more process; less than a tenth is not explained by that, and more than the upper end says that the workbench's
# client is what limits.
MOUNT_PARTS = (0.1, 1.5)


def parts_agree(tables, kinds):
    """Whether every kind has the same part of each hundred operations in all tables."""
    def spread(kind):
        shares = [table.get(kind, 0.0) for table in tables]
        return max(shares) - min(shares)

    return all(spread(kind) <= PARTS_MAX for kind in kinds)


def ratios_agree(one, other):
    """Whether two clients saw the same ratio of two servers: the ranges of their rounds meet, or nearly."""
    return max(min(one), min(other)) <= GAP_MAX * min(max(one), max(other))


def mount_agrees(mounted, ours):
    """Whether the rate over a mount is a credible part of the workbench's."""
    least, most = MOUNT_PARTS
    return least * ours <= mounted <= most * ours
