/* iphlpapi.dll: interfaces, forwarding and routes of the simulated host. Only
 * the calls that the plugin makes are here. */
#include <winsock2.h>
#include <ws2ipdef.h>
#include <windows.h>
#include <iphlpapi.h>
#include <netioapi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simulator.h"

#undef FreeMibTable

#define EXPORT __declspec(dllexport) DWORD WINAPI
#define MAX_ADDRESSES 4

/* nic is an adapter with all that it points to. */
struct nic {
    IP_ADAPTER_ADDRESSES adapter;
    IP_ADAPTER_UNICAST_ADDRESS unicast[MAX_ADDRESSES];
    struct sockaddr_in address[MAX_ADDRESSES];
    WCHAR name[64];
    WCHAR empty[1];
    CHAR guid[40];
};

static DWORD error_of(unsigned long code) { return code == 0 ? NO_ERROR : ERROR_NOT_FOUND; }

static void read_mac(IP_ADAPTER_ADDRESSES *adapter, const char *text)
{
    unsigned byte;
    if (*text == '-')
        return;
    for (; adapter->PhysicalAddressLength < 6 && sscanf(text, "%2x", &byte) == 1; text += 2)
        adapter->PhysicalAddress[adapter->PhysicalAddressLength++] = (BYTE)byte;
}

static void read_addresses(struct nic *nic, char *text)
{
    int n = 0;
    char *save, *one;
    if (*text == '-')
        return;
    for (one = strtok_s(text, ",", &save); one != NULL && n < MAX_ADDRESSES; one = strtok_s(NULL, ",", &save), n++) {
        IP_ADAPTER_UNICAST_ADDRESS *unicast = &nic->unicast[n];
        unsigned a, b, c, d, bits;
        if (sscanf(one, "%u.%u.%u.%u/%u", &a, &b, &c, &d, &bits) != 5)
            return;
        nic->address[n].sin_family = AF_INET;
        nic->address[n].sin_addr.s_addr = htonl(a << 24 | b << 16 | c << 8 | d);
        unicast->Length = sizeof *unicast;
        unicast->Address.lpSockaddr = (struct sockaddr *)&nic->address[n];
        unicast->Address.iSockaddrLength = sizeof nic->address[n];
        unicast->OnLinkPrefixLength = (UINT8)bits;
        unicast->DadState = IpDadStatePreferred;
        if (n == 0)
            nic->adapter.FirstUnicastAddress = unicast;
        else
            nic->unicast[n - 1].Next = unicast;
    }
}

static int read_nic(struct nic *nic, char *line)
{
    char mac[32], addresses[128], name[64];
    unsigned long index;
    memset(nic, 0, sizeof *nic);
    if (sscanf(line, "%lu %31s %127s %63[^\n]", &index, mac, addresses, name) != 4)
        return 0;
    nic->adapter.Length = sizeof nic->adapter;
    nic->adapter.IfIndex = index;
    nic->adapter.Mtu = 1500;
    nic->adapter.IfType = IF_TYPE_ETHERNET_CSMACD;
    nic->adapter.OperStatus = IfOperStatusUp;
    nic->adapter.AdapterName = nic->guid;
    nic->adapter.FriendlyName = nic->name;
    nic->adapter.Description = nic->name;
    nic->adapter.DnsSuffix = nic->empty;
    MultiByteToWideChar(CP_UTF8, 0, name, -1, nic->name, 64);
    read_mac(&nic->adapter, mac);
    read_addresses(nic, addresses);
    return 1;
}

EXPORT GetAdaptersAddresses(ULONG family, ULONG flags, PVOID reserved, PIP_ADAPTER_ADDRESSES out, PULONG size)
{
    char *answer, *line, *save;
    struct nic *nics = (struct nic *)out;
    ULONG needed = 0, n = 0;

    if (simulate("Interfaces", "", "", &answer) != 0) {
        free(answer);
        return ERROR_NO_DATA;
    }
    for (line = answer; *line; line++)
        needed += *line == '\n' ? sizeof(struct nic) : 0;
    if (out == NULL || *size < needed) {
        *size = needed;
        free(answer);
        return ERROR_BUFFER_OVERFLOW;
    }
    for (line = strtok_s(answer, "\n", &save); line != NULL; line = strtok_s(NULL, "\n", &save)) {
        if (!read_nic(&nics[n], line))
            continue;
        if (n > 0)
            nics[n - 1].adapter.Next = &nics[n].adapter;
        n++;
    }
    *size = needed;
    free(answer);
    return n > 0 ? NO_ERROR : ERROR_NO_DATA;
}

static unsigned long ask(const char *function, ULONG index, char **answer)
{
    char id[16];
    snprintf(id, sizeof id, "%lu", (unsigned long)index);
    return simulate(function, id, "", answer);
}

EXPORT GetIpInterfaceEntry(PMIB_IPINTERFACE_ROW row)
{
    char *answer;
    unsigned long code = ask("Forwarding", row->InterfaceIndex, &answer);
    if (code == 0)
        row->ForwardingEnabled = strcmp(answer, "true") == 0;
    free(answer);
    return error_of(code);
}

EXPORT SetIpInterfaceEntry(PMIB_IPINTERFACE_ROW row)
{
    char *answer;
    unsigned long code;
    if (!row->ForwardingEnabled || row->SitePrefixLength != 0)
        return ERROR_INVALID_PARAMETER;
    code = ask("EnableForwarding", row->InterfaceIndex, &answer);
    free(answer);
    return error_of(code);
}

static void set_address(SOCKADDR_INET *to, const char *text)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    sscanf(text, "%u.%u.%u.%u", &a, &b, &c, &d);
    to->Ipv4.sin_family = AF_INET;
    to->Ipv4.sin_addr.s_addr = htonl(a << 24 | b << 16 | c << 8 | d);
}

static void write_address(char *out, size_t size, const SOCKADDR_INET *from)
{
    ULONG a = ntohl(from->Ipv4.sin_addr.s_addr);
    snprintf(out, size, "%lu.%lu.%lu.%lu", a >> 24, a >> 16 & 255, a >> 8 & 255, a & 255);
}

EXPORT GetIpForwardTable2(ADDRESS_FAMILY family, PMIB_IPFORWARD_TABLE2 *out)
{
    char *answer, *line, *save, destination[16], gateway[16];
    unsigned long bits, index, metric, code = simulate("Routes", "", "", &answer);
    size_t rows = 0;
    MIB_IPFORWARD_TABLE2 *table;

    if (code != 0) {
        free(answer);
        return error_of(code);
    }
    for (line = answer; *line; line++)
        rows += *line == '\n';
    table = calloc(1, sizeof *table + rows * sizeof table->Table[0]);
    for (line = strtok_s(answer, "\n", &save); line != NULL; line = strtok_s(NULL, "\n", &save)) {
        MIB_IPFORWARD_ROW2 *row = &table->Table[table->NumEntries];
        if (sscanf(line, "%15s %lu %15s %lu %lu", destination, &bits, gateway, &index, &metric) != 5)
            continue;
        set_address(&row->DestinationPrefix.Prefix, destination);
        row->DestinationPrefix.PrefixLength = (UINT8)bits;
        set_address(&row->NextHop, gateway);
        row->InterfaceIndex = index;
        row->Metric = metric;
        table->NumEntries++;
    }
    free(answer);
    *out = table;
    return NO_ERROR;
}

__declspec(dllexport) VOID WINAPI FreeMibTable(PVOID table) { free(table); }

__declspec(dllexport) VOID WINAPI InitializeIpForwardEntry(PMIB_IPFORWARD_ROW2 row) { memset(row, 0, sizeof *row); }

EXPORT CreateIpForwardEntry2(const MIB_IPFORWARD_ROW2 *row)
{
    char line[128], destination[16], gateway[16], *answer;
    unsigned long code;
    write_address(destination, sizeof destination, &row->DestinationPrefix.Prefix);
    write_address(gateway, sizeof gateway, &row->NextHop);
    snprintf(line, sizeof line, "%s %u %s %lu %lu", destination, row->DestinationPrefix.PrefixLength, gateway,
             (unsigned long)row->InterfaceIndex, (unsigned long)row->Metric);
    code = simulate("AddRoute", "", line, &answer);
    free(answer);
    return error_of(code);
}

EXPORT SetCurrentThreadCompartmentId(NET_IF_COMPARTMENT_ID id) { return NO_ERROR; }
