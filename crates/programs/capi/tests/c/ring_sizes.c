/* Numbers of rings and slots of a switch's port: netmap's defaults if the program leaves them zero, the nearest valid ones if it requests
 * invalid ones. Usage: ring_sizes SWITCH */
#include "common.h"

static const struct {
	uint32_t rings, slots, got_rings, got_slots;
} rows[] = {
	{ 0, 0, 1, 1024 },
	{ 1, 1024, 1, 1024 },
	{ 2, 512, 2, 512 },
	{ 16, 100, 16, 100 },
	{ 17, 64, 16, 64 },
	{ 60000, 64, 16, 64 },
	{ 1, 4096, 1, 4096 },
	{ 1, 4097, 1, 4096 },
	{ 1, 0xffffffff, 1, 4096 },
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

static const char *sw;
static char port[64];

static const char *
name(size_t row)
{
	snprintf(port, sizeof(port), "%s:size%zu", sw, row);
	return port;
}

static void
check(size_t i, const char *what, uint32_t tx_rings, uint32_t rx_rings, uint32_t tx_slots, uint32_t rx_slots)
{
	CHECK(tx_rings == rows[i].got_rings && rx_rings == rows[i].got_rings, "row %zu, %s: %u, %u rings", i, what, tx_rings,
	    rx_rings);
	CHECK(tx_slots == rows[i].got_slots && rx_slots == rows[i].got_slots, "row %zu, %s: %u, %u slots", i, what, tx_slots,
	    rx_slots);
}

static void
registered(size_t i)
{
	struct nmreq_register r = { .nr_mode = NR_REG_ALL_NIC };
	struct nmreq_port_info_get info = { 0 };
	struct port p;
	int fd = device();

	info.nr_tx_rings = info.nr_rx_rings = (uint16_t)rows[i].rings;
	info.nr_tx_slots = info.nr_rx_slots = rows[i].slots;
	CHECK(request(fd, name(i), NETMAP_REQ_PORT_INFO_GET, &info) == 0, "info");
	check(i, "as it would be", info.nr_tx_rings, info.nr_rx_rings, info.nr_tx_slots, info.nr_rx_slots);

	r.nr_tx_rings = r.nr_rx_rings = (uint16_t)rows[i].rings;
	r.nr_tx_slots = r.nr_rx_slots = rows[i].slots;
	p = open_port_with(name(i), r);
	check(i, "registered", p.reg.nr_tx_rings, p.reg.nr_rx_rings, p.reg.nr_tx_slots, p.reg.nr_rx_slots);
	CHECK(p.nifp->ni_tx_rings == rows[i].got_rings, "row %zu: netmap_if", i);
	CHECK(NETMAP_TXRING(p.nifp, 0)->num_slots == rows[i].got_slots, "row %zu: ring", i);
	CHECK(p.reg.nr_host_tx_rings == 0 && p.reg.nr_host_rx_rings == 0, "row %zu: host rings", i);
	memset(&info, 0, sizeof(info));
	CHECK(request(fd, name(i), NETMAP_REQ_PORT_INFO_GET, &info) == 0, "info");
	check(i, "as it is", info.nr_tx_rings, info.nr_rx_rings, info.nr_tx_slots, info.nr_rx_slots);
	close_port(&p);
	close(fd);
}

static void
persistent(size_t i)
{
	struct nmreq_vale_newif n = { 0 };
	struct port p;
	char newif[16];
	int fd = device();

	snprintf(newif, sizeof(newif), "nvsize%zu", i);
	n.nr_tx_rings = n.nr_rx_rings = (uint16_t)rows[i].rings;
	n.nr_tx_slots = n.nr_rx_slots = rows[i].slots;
	CHECK(request(fd, newif, NETMAP_REQ_VALE_NEWIF, &n) == 0, "newif");
	check(i, "made", n.nr_tx_rings, n.nr_rx_rings, n.nr_tx_slots, n.nr_rx_slots);
	p = open_port(newif);
	check(i, "opened", p.reg.nr_tx_rings, p.reg.nr_rx_rings, p.reg.nr_tx_slots, p.reg.nr_rx_slots);
	close_port(&p);
	CHECK(request(fd, newif, NETMAP_REQ_VALE_DELIF, NULL) == 0, "delif");
	close(fd);
}

static void
legacy(size_t i)
{
	struct nmreq r = { .nr_version = NETMAP_API };
	int fd = device();

	snprintf(r.nr_name, sizeof(r.nr_name), "%.15s", name(i));
	r.nr_tx_rings = r.nr_rx_rings = (uint16_t)rows[i].rings;
	r.nr_tx_slots = r.nr_rx_slots = rows[i].slots;
	CHECK(ioctl(fd, NIOCGINFO, &r) == 0, "NIOCGINFO");
	check(i, "NIOCGINFO", r.nr_tx_rings, r.nr_rx_rings, r.nr_tx_slots, r.nr_rx_slots);
	r.nr_arg2 = 0;
	r.nr_tx_rings = r.nr_rx_rings = (uint16_t)rows[i].rings;
	r.nr_tx_slots = r.nr_rx_slots = rows[i].slots;
	CHECK(ioctl(fd, NIOCREGIF, &r) == 0, "NIOCREGIF");
	check(i, "NIOCREGIF", r.nr_tx_rings, r.nr_rx_rings, r.nr_tx_slots, r.nr_rx_slots);
	close(fd);
}

int
main(int argc, char **argv)
{
	size_t i;

	CHECK(argc == 2, "a switch");
	alarm(60);
	sw = argv[1];
	for (i = 0; i < ROWS; i++) {
		registered(i);
		persistent(i);
		legacy(i);
	}
	return 0;
}
