/*
 * matrix [-t] [-e FILE] FRAMES PORT…: which ports of a switch get which frames, and how they look there.
 *
 * Sends the frames of the file FRAMES one after the other, and prints the line of each with where it came out:
 *
 *     trunk all 01 q10p5 : a=none b=none uplink=8100a00a
 *
 * The frame was sent into the interface `trunk`; it came out at `a` and `b` without a tag, at `uplink` with one, and nowhere else. The bytes
 * printed are those between source address and payload; if the frame was cut or altered, all bytes after the addresses.
 *
 * A PORT is an interface of that name, on which the program has a packet socket; with -t, a TAP device that is a port of a bridge.
 * A line of FRAMES: PORT DESTINATION SOURCE [TAG…] [len N] [cut N].
 *   addresses: `all`, `group`, six pairs of hex digits with colons, or two such digits for 02:00:00:00:00:XX
 *   q10, s10  a tag with VLAN 10 of protocol 0x8100 or 0x88a8; q10p5 with priority 5; q10p5d with the bit for drop eligibility
 *   len N     the frame's length, instead of 60 bytes plus tags
 *   cut N     only the first N bytes
 * Empty lines and lines that begin with # are ignored.
 *
 * Without -e, the program waits after each frame until nothing has arrived for a while. With -e, FILE is its output on another switch: it waits for
 * as many frames as that lists, so that a busy machine makes no difference.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { PORTS = 16, LONGEST = 2048, ADDRESSES = 12, TYPE = 0x88b5, QUIET_MS = 5, NOTHING_MS = 30, LIMIT_MS = 5000 };

struct port {
	const char *name;
	int fd;
};

struct frame {
	char line[200];
	unsigned from, len, payload;
	int is_cut;
	unsigned char bytes[LONGEST];
	/* Where it came out: a text for each port; the number of arrivals, and how many are expected. */
	char *got[PORTS];
	unsigned arrived, expected;
};

static struct port ports[PORTS];
static unsigned port_count;
static struct frame *frames;
static unsigned frame_count;
static int are_taps;

static void die(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	fputs("matrix: ", stderr);
	vfprintf(stderr, format, list);
	fputc('\n', stderr);
	exit(2);
}

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000L + t.tv_nsec / 1000000;
}

static int open_tap(const char *name)
{
	struct ifreq ifr = { .ifr_flags = IFF_TAP | IFF_NO_PI };
	int fd = open("/dev/net/tun", O_RDWR);

	strncpy(ifr.ifr_name, name, IFNAMSIZ - 1);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &ifr) < 0)
		die("TAP %s: %s", name, strerror(errno));
	return fd;
}

static int open_socket(const char *name)
{
	int yes = 1, fd = socket(AF_PACKET, SOCK_RAW, 0);
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	struct packet_mreq all = { .mr_type = PACKET_MR_PROMISC };

	at.sll_ifindex = all.mr_ifindex = if_nametoindex(name);
	if (fd < 0 || !at.sll_ifindex)
		die("interface %s: %s", name, strerror(errno));
	/* The kernel removes a received frame's outer tag and reports it here. */
	if (setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &yes, sizeof(yes)) ||
	    setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof(yes)) ||
	    setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof(all)) ||
	    bind(fd, (struct sockaddr *)&at, sizeof(at)))
		die("packet socket on %s: %s", name, strerror(errno));
	return fd;
}

/* Waits until the bridge forwards frames of a port. */
static void wait_for_bridge(const char *name)
{
	char path[64];
	int state = -1;

	snprintf(path, sizeof(path), "/sys/class/net/%s/brport/state", name);
	for (long end = now_ms() + LIMIT_MS; state != 3 && now_ms() < end; usleep(20000)) {
		FILE *file = fopen(path, "r");

		if (!file || fscanf(file, "%d", &state) != 1)
			die("%s: no port of a bridge", name);
		fclose(file);
	}
	if (state != 3)
		die("%s: the bridge does not forward", name);
}

/* Receives a frame, with its tag put back in place. */
static long take(const struct port *port, unsigned char *bytes)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
	} control;
	struct iovec iov = { .iov_base = bytes, .iov_len = LONGEST - 4 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
	struct tpacket_auxdata aux;
	struct cmsghdr *c;
	long len;

	if (are_taps)
		return read(port->fd, bytes, LONGEST);
	len = recvmsg(port->fd, &msg, MSG_DONTWAIT);
	for (c = CMSG_FIRSTHDR(&msg); len >= ADDRESSES && c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA)
			continue;
		memcpy(&aux, CMSG_DATA(c), sizeof(aux));
		if (!(aux.tp_status & TP_STATUS_VLAN_VALID))
			continue;
		unsigned short tag[2] = { htons(aux.tp_status & TP_STATUS_VLAN_TPID_VALID ? aux.tp_vlan_tpid : ETH_P_8021Q),
					  htons(aux.tp_vlan_tci) };
		memmove(bytes + ADDRESSES + 4, bytes + ADDRESSES, len - ADDRESSES);
		memcpy(bytes + ADDRESSES, tag, 4);
		len += 4;
	}
	return len;
}

/* Adds an arrival at a port to its frame's texts. */
static void note(struct frame *frame, unsigned port, const unsigned char *bytes, unsigned len)
{
	char *text = frame->got[port];
	unsigned payload = frame->is_cut ? 0 : frame->payload, to = len;
	int is_whole = len >= ADDRESSES + payload && !memcmp(bytes, frame->bytes, ADDRESSES) &&
		       !memcmp(bytes + len - payload, frame->bytes + frame->len - payload, payload);

	text = realloc(text, (text ? strlen(text) : 0) + 2 * LONGEST + 64);
	if (!frame->got[port])
		*text = 0;
	frame->got[port] = text;
	text += strlen(text);
	text += sprintf(text, " %s=%s", ports[port].name, is_whole ? "" : "altered:");
	if (is_whole)
		to = len - payload;
	if (is_whole && to == ADDRESSES)
		strcpy(text, "none");
	for (unsigned i = is_whole ? ADDRESSES : 0; i < to; i++)
		text += sprintf(text, "%02x", bytes[i]);
	frame->arrived++;
}

/* Reads arrivals, and assigns each to the frame whose number it carries, or else to the last one. Returns whether there was any within that time. */
static int listen_for(long ms, unsigned last)
{
	struct pollfd fds[PORTS];
	unsigned char bytes[LONGEST];
	int some = 0;

	for (unsigned i = 0; i < port_count; i++)
		fds[i] = (struct pollfd){ .fd = ports[i].fd, .events = POLLIN };
	if (poll(fds, port_count, ms > 0 ? ms : 0) <= 0)
		return 0;
	for (unsigned i = 0; i < port_count; i++) {
		long len = fds[i].revents & POLLIN ? take(&ports[i], bytes) : 0;
		unsigned number = last;

		if (len < ADDRESSES)
			continue;
		if (!memcmp(bytes + len - 4, "nv", 2))
			number = bytes[len - 2] << 8 | bytes[len - 1];
		if (number < frame_count)
			note(&frames[number], i, bytes, len);
		some = 1;
	}
	return some;
}

static void pass_time(unsigned number, int is_expected)
{
	const struct frame *frame = &frames[number];
	long end = now_ms() + LIMIT_MS;

	if (!is_expected) {
		while (listen_for(QUIET_MS, number))
			;
		return;
	}
	while (frame->arrived < frame->expected && now_ms() < end)
		listen_for(end - now_ms(), number);
	if (!frame->expected)
		for (end = now_ms() + NOTHING_MS; now_ms() < end;)
			listen_for(end - now_ms(), number);
}

static void address(unsigned char *to, const char *word)
{
	unsigned a, b, c, d, e, f;

	if (!strcmp(word, "all"))
		memset(to, 0xff, 6);
	else if (!strcmp(word, "group"))
		memcpy(to, "\x01\x00\x5e\x01\x02\x03", 6);
	else if (sscanf(word, "%x:%x:%x:%x:%x:%x", &a, &b, &c, &d, &e, &f) == 6)
		memcpy(to, (unsigned char[]){ a, b, c, d, e, f }, 6);
	else if (sscanf(word, "%2x", &f) == 1)
		memcpy(to, (unsigned char[]){ 2, 0, 0, 0, 0, f }, 6);
	else
		die("address %s", word);
}

static unsigned port_of(const char *name)
{
	for (unsigned i = 0; i < port_count; i++)
		if (!strcmp(ports[i].name, name))
			return i;
	die("no port is called %s", name);
	return 0;
}

/* Builds a frame from its line. */
static void read_frame(struct frame *frame, unsigned number)
{
	char copy[sizeof(frame->line)], *rest, *word;
	unsigned at = ADDRESSES, len = 0, cut = 0;

	strcpy(copy, frame->line);
	frame->from = port_of(strtok_r(copy, " ", &rest));
	for (unsigned i = 0; i < 2; i++) {
		if (!(word = strtok_r(NULL, " ", &rest)))
			die("a frame without addresses: %s", frame->line);
		address(frame->bytes + 6 * i, word);
	}
	while ((word = strtok_r(NULL, " ", &rest))) {
		unsigned vlan, priority = 0;
		char kind, dei = 0;

		if (!strcmp(word, "len") || !strcmp(word, "cut")) {
			*(*word == 'l' ? &len : &cut) = atoi(strtok_r(NULL, " ", &rest) ?: "");
		} else if (sscanf(word, "%c%up%u%c", &kind, &vlan, &priority, &dei) >= 2 && strchr("qs", kind)) {
			unsigned control = priority << 13 | (dei == 'd') << 12 | vlan;

			memcpy(frame->bytes + at, kind == 'q' ? "\x81\x00" : "\x88\xa8", 2);
			frame->bytes[at + 2] = control >> 8;
			frame->bytes[at + 3] = control;
			at += 4;
		} else {
			die("%s in %s", word, frame->line);
		}
	}
	len = len ?: at + 48;
	if (len > LONGEST - 4 || len < at + 6)
		die("length of %s", frame->line);
	frame->payload = len - at;
	frame->bytes[at] = TYPE >> 8;
	frame->bytes[at + 1] = TYPE & 0xff;
	for (unsigned i = at + 2; i < len; i++)
		frame->bytes[i] = i * 7;
	memcpy(frame->bytes + len - 4, (char[]){ 'n', 'v', number >> 8, number }, 4);
	frame->is_cut = cut != 0;
	frame->len = cut ?: len;
}

static void read_frames(const char *path)
{
	FILE *file = fopen(path, "r");
	char line[sizeof(frames->line)];

	if (!file)
		die("%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = 0;
		if (!*line || *line == '#')
			continue;
		frames = realloc(frames, (frame_count + 1) * sizeof(*frames));
		memset(&frames[frame_count], 0, sizeof(*frames));
		strcpy(frames[frame_count].line, line);
		read_frame(&frames[frame_count], frame_count);
		frame_count++;
	}
	fclose(file);
}

/* Reads how many arrivals each frame has in the output of an earlier run. */
static void read_expected(const char *path)
{
	FILE *file = fopen(path, "r");
	char line[8192];

	for (unsigned i = 0; file && i < frame_count && fgets(line, sizeof(line), file); i++)
		for (char *at = line; (at = strchr(at, '=')); at++)
			frames[i].expected++;
	if (file)
		fclose(file);
}

int main(int argc, char **argv)
{
	const char *expected = NULL;
	int option;

	while ((option = getopt(argc, argv, "te:")) != -1) {
		if (option == 't')
			are_taps = 1;
		else if (option == 'e')
			expected = optarg;
		else
			return 2;
	}
	if (argc - optind < 2 || argc - optind - 1 > PORTS)
		die("matrix [-t] [-e FILE] FRAMES PORT…");
	for (int i = optind + 1; i < argc; i++) {
		ports[port_count].name = argv[i];
		ports[port_count++].fd = (are_taps ? open_tap : open_socket)(argv[i]);
	}
	for (unsigned i = 0; are_taps && i < port_count; i++)
		wait_for_bridge(ports[i].name);
	read_frames(argv[optind]);
	if (expected)
		read_expected(expected);

	for (unsigned i = 0; i < frame_count; i++) {
		if (write(ports[frames[i].from].fd, frames[i].bytes, frames[i].len) != (long)frames[i].len)
			die("%s: cannot be sent: %s", frames[i].line, strerror(errno));
		pass_time(i, expected != NULL);
	}
	/* Late arrivals, and unexpected ones. */
	while (listen_for(40 * QUIET_MS, frame_count))
		;
	for (unsigned i = 0; i < frame_count; i++) {
		printf("%s :", frames[i].line);
		for (unsigned p = 0; p < port_count; p++)
			fputs(frames[i].got[p] ?: "", stdout);
		puts("");
	}
	return 0;
}
