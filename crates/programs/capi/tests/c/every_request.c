/* Every control request to every kind of port. Other programs test the effect of each request.
 * Usage: every_request SWITCH CLOSED OPENED ATTACHED (interfaces; the last one is put on the switch) */
#include "common.h"

/* The requests. */
enum question {
	INFO, POOLS, HDR_GET, HDR_SET, REGISTER, ONE_RING, NO_SUCH_RING, HOST, EXCLUSIVE, WATCH, LIST, DETACH, ATTACH, NEWIF, DELIF, POLL,
	CSB, KLOOP, QUESTIONS
};

static const char *const questions[QUESTIONS] = {
	"PORT_INFO_GET", "POOLS_INFO_GET", "PORT_HDR_GET", "PORT_HDR_SET", "REGISTER", "REGISTER of ring 0", "REGISTER of ring 99",
	"REGISTER of host rings", "REGISTER alone", "REGISTER of a monitor", "VALE_LIST", "VALE_DETACH", "VALE_ATTACH", "VALE_NEWIF",
	"VALE_DELIF", "VALE_POLLING_ENABLE", "CSB_ENABLE", "SYNC_KLOOP_START",
};

static const char *sw, *closed_if, *opened_if, *attached_if;

/* A port in some state, and the errno of each request to it; 0: executed. LEFT: not tried, as it would change the state for good. */
#define LEFT (-1)
struct kind {
	const char *what;
	char name[64];
	int answers[QUESTIONS];
};

/* Columns: info pools hdrget hdrset reg one none host alone watch list detach attach newif delif poll csb kloop */
static struct kind kinds[] = {
	{"a VALE port that is not there", "%s:absent",
	 {0, 0, ENXIO, ENXIO, 0, 0, EINVAL, EINVAL, 0, EINVAL, 0, ENXIO, EINVAL, EINVAL, ENXIO, ENXIO, EINVAL, ENXIO}},
	{"a VALE port that is open", "%s:open",
	 {0, 0, 0, 0, 0, 0, EINVAL, EINVAL, EBUSY, 0, 0, 0, EBUSY, EINVAL, ENXIO, EOPNOTSUPP, EINVAL, ENXIO}},
	{"a persistent port", "loose",
	 {0, 0, 0, ENXIO, 0, 0, EINVAL, EINVAL, 0, EINVAL, EINVAL, EINVAL, EINVAL, EEXIST, LEFT, EINVAL, EINVAL, ENXIO}},
	{"a persistent port on a switch, by its own name", "fixed",
	 {0, 0, 0, ENXIO, 0, 0, EINVAL, EINVAL, 0, EINVAL, EINVAL, EINVAL, EINVAL, EEXIST, EBUSY, EINVAL, EINVAL, ENXIO}},
	{"the same, by its name there", "%s:fixed",
	 {0, 0, 0, 0, 0, 0, EINVAL, EINVAL, 0, EINVAL, 0, LEFT, EBUSY, EINVAL, ENXIO, EOPNOTSUPP, EINVAL, ENXIO}},
	{"a pipe that is not there", "loosepipe{7",
	 {0, 0, ENXIO, ENXIO, 0, 0, EINVAL, EINVAL, 0, EINVAL, EINVAL, EINVAL, EINVAL, EINVAL, ENXIO, EINVAL, EINVAL, ENXIO}},
	{"the free end of a pipe", "pipe}3",
	 {0, 0, 0, ENXIO, 0, 0, EINVAL, EINVAL, 0, EINVAL, EINVAL, EINVAL, EINVAL, EINVAL, ENXIO, EINVAL, EINVAL, ENXIO}},
	{"the open end of a pipe", "pipe{3",
	 {0, 0, 0, ENXIO, 0, 0, EINVAL, EINVAL, EBUSY, 0, EINVAL, EINVAL, EINVAL, EINVAL, ENXIO, EINVAL, EINVAL, ENXIO}},
	{"an interface", "CLOSED",
	 {0, 0, 0, ENXIO, 0, 0, EINVAL, 0, 0, EINVAL, EINVAL, EINVAL, EINVAL, EEXIST, EINVAL, EINVAL, EINVAL, ENXIO}},
	{"an interface that is open", "OPENED",
	 {0, 0, 0, ENXIO, EBUSY, EBUSY, EINVAL, 0, EBUSY, 0, EINVAL, EINVAL, EINVAL, EEXIST, EINVAL, EINVAL, EINVAL, ENXIO}},
	{"an interface on a switch, by its own name", "ATTACHED",
	 {0, 0, 0, ENXIO, EBUSY, EBUSY, EINVAL, EBUSY, EBUSY, 0, EINVAL, EINVAL, EINVAL, EEXIST, EINVAL, EINVAL, EINVAL, ENXIO}},
	{"the same, by its name there", "%s:ATTACHED",
	 {0, 0, 0, 0, EBUSY, EBUSY, EBUSY, EBUSY, EBUSY, 0, 0, LEFT, EBUSY, EINVAL, ENXIO, 0, EINVAL, ENXIO}},
	{"a name that nobody has", "nosuchif0",
	 {ENXIO, ENXIO, ENXIO, ENXIO, ENXIO, ENXIO, ENXIO, ENXIO, ENXIO, ENXIO, EINVAL, EINVAL, EINVAL, LEFT, ENXIO, EINVAL, EINVAL, ENXIO}},
	{"no name", "",
	 {0, ENXIO, ENXIO, ENXIO, ENXIO, ENXIO, ENXIO, ENXIO, ENXIO, ENXIO, 0, EINVAL, EINVAL, EINVAL, ENXIO, EINVAL, EINVAL, ENXIO}},
};

/* Puts the names of the command line in their places. */
static void
complete(struct kind *k)
{
	static const char *const words[] = {"CLOSED", "OPENED", "ATTACHED"};
	const char *with[] = {closed_if, opened_if, attached_if};
	char text[64], *at;
	size_t i;

	for (i = 0; i < 3; i++) {
		if ((at = strstr(k->name, words[i])) != NULL) {
			*at = 0;
			snprintf(text, sizeof(text), "%.30s%.30s", k->name, with[i]);
			strcpy(k->name, text);
		}
	}
	if (strncmp(k->name, "%s", 2) == 0) {
		snprintf(text, sizeof(text), "%.30s%.32s", sw, k->name + 2);
		strcpy(k->name, text);
	}
}

static int
register_with(int fd, const char *name, uint32_t mode, uint16_t ring, uint64_t flags)
{
	struct nmreq_register r = { .nr_mode = mode, .nr_ringid = ring, .nr_flags = flags | NR_ACCEPT_VNET_HDR };

	return request(fd, name, NETMAP_REQ_REGISTER, &r);
}

/* Undoes the effect of a request. */
static void
undo(int fd, enum question q, const char *name)
{
	struct nmreq_vale_polling p = {.nr_mode = NETMAP_POLLING_MODE_SINGLE_CPU, .nr_num_polling_cpus = 1};

	if (q == POLL)
		CHECK(request(fd, name, NETMAP_REQ_VALE_POLLING_DISABLE, &p) == 0, "no more polling of %s", name);
	if (q == NEWIF)
		CHECK(request(fd, name, NETMAP_REQ_VALE_DELIF, NULL) == 0, "%s goes again", name);
}

/* Makes a request on a new descriptor. Returns the errno. */
static int
ask(enum question q, const char *name)
{
	union {
		struct nmreq_port_info_get info;
		struct nmreq_pools_info pools;
		struct nmreq_port_hdr hdr;
		struct nmreq_vale_list list;
		struct nmreq_vale_attach attach;
		struct nmreq_vale_detach detach;
		struct nmreq_vale_newif newif;
		struct nmreq_vale_polling poll;
		struct nmreq_sync_kloop_start kloop;
	} b;
	int fd = device(), got;

	memset(&b, 0, sizeof(b));
	switch (q) {
	case INFO: got = request(fd, name, NETMAP_REQ_PORT_INFO_GET, &b); break;
	case POOLS: got = request(fd, name, NETMAP_REQ_POOLS_INFO_GET, &b); break;
	case HDR_GET: got = request(fd, name, NETMAP_REQ_PORT_HDR_GET, &b); break;
	case HDR_SET: got = request(fd, name, NETMAP_REQ_PORT_HDR_SET, &b); break;
	case REGISTER: got = register_with(fd, name, NR_REG_ALL_NIC, 0, 0); break;
	case ONE_RING: got = register_with(fd, name, NR_REG_ONE_NIC, 0, 0); break;
	case NO_SUCH_RING: got = register_with(fd, name, NR_REG_ONE_NIC, 99, 0); break;
	case HOST: got = register_with(fd, name, NR_REG_SW, 0, 0); break;
	case EXCLUSIVE: got = register_with(fd, name, NR_REG_ALL_NIC, 0, NR_EXCLUSIVE); break;
	case WATCH: got = register_with(fd, name, NR_REG_ALL_NIC, 0, NR_MONITOR_TX | NR_MONITOR_RX); break;
	case LIST: got = request(fd, name, NETMAP_REQ_VALE_LIST, &b); break;
	case DETACH: got = request(fd, name, NETMAP_REQ_VALE_DETACH, &b); break;
	case ATTACH:
		b.attach.reg.nr_mode = NR_REG_ALL_NIC;
		got = request(fd, name, NETMAP_REQ_VALE_ATTACH, &b);
		break;
	case NEWIF: got = request(fd, name, NETMAP_REQ_VALE_NEWIF, &b); break;
	case DELIF: got = request(fd, name, NETMAP_REQ_VALE_DELIF, NULL); break;
	case POLL:
		b.poll.nr_mode = NETMAP_POLLING_MODE_SINGLE_CPU;
		b.poll.nr_num_polling_cpus = 1;
		got = request(fd, name, NETMAP_REQ_VALE_POLLING_ENABLE, &b);
		break;
	/* Of the descriptor, which has no port. */
	case CSB: got = request(fd, name, NETMAP_REQ_CSB_ENABLE, NULL); break;
	default: got = request(fd, name, NETMAP_REQ_SYNC_KLOOP_START, &b); break;
	}
	got = got == 0 ? 0 : errno;
	if (got == 0)
		undo(fd, q, name);
	close(fd);
	return got;
}

static void
newif(int fd, const char *name)
{
	struct nmreq_vale_newif n = { 0 };

	CHECK(request(fd, name, NETMAP_REQ_VALE_NEWIF, &n) == 0, "newif %s", name);
}

static void
attach(int fd, const char *port)
{
	struct nmreq_vale_attach a = { .reg.nr_mode = NR_REG_ALL_NIC };
	char name[64];

	snprintf(name, sizeof(name), "%.30s:%.30s", sw, port);
	CHECK(request(fd, name, NETMAP_REQ_VALE_ATTACH, &a) == 0, "attach %s", name);
}

static void
detach(int fd, const char *port)
{
	struct nmreq_vale_detach d = { 0 };
	char name[64];

	snprintf(name, sizeof(name), "%.30s:%.30s", sw, port);
	CHECK(request(fd, name, NETMAP_REQ_VALE_DETACH, &d) == 0, "detach %s", name);
}

int
main(int argc, char **argv)
{
	struct port vale, pipe, nic;
	char open_name[64];
	int fd, wrong = 0;
	size_t i, q;

	CHECK(argc == 5, "a switch and three interfaces");
	alarm(90);
	sw = argv[1];
	closed_if = argv[2];
	opened_if = argv[3];
	attached_if = argv[4];
	fd = device();
	newif(fd, "loose");
	newif(fd, "fixed");
	attach(fd, "fixed");
	attach(fd, attached_if);
	snprintf(open_name, sizeof(open_name), "%.30s:open", sw);
	vale = open_port(open_name);
	pipe = open_port("pipe{3");
	nic = open_port(opened_if);
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		complete(&kinds[i]);
		for (q = 0; q < QUESTIONS; q++) {
			int want = kinds[i].answers[q], got;

			if (want == LEFT)
				continue;
			got = ask((enum question)q, kinds[i].name);
			if (got != want) {
				wrong++;
				fprintf(stderr, "%s to %s (%s): %s, not %s\n", questions[q], kinds[i].what, kinds[i].name,
				    got ? strerror(got) : "done", want ? strerror(want) : "done");
			}
		}
	}
	close_port(&nic);
	close_port(&pipe);
	close_port(&vale);
	detach(fd, attached_if);
	detach(fd, "fixed");
	CHECK(request(fd, "fixed", NETMAP_REQ_VALE_DELIF, NULL) == 0, "delif");
	CHECK(request(fd, "loose", NETMAP_REQ_VALE_DELIF, NULL) == 0, "delif");
	CHECK(wrong == 0, "%d answers are not netmap's", wrong);
	return 0;
}
