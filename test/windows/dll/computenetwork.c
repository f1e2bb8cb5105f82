/* computenetwork.dll: every exported call of HNS is forwarded. Handles are the
 * text of the object's id. Load balancers and SDN routes are not simulated. */
#include <windows.h>
#include <objbase.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simulator.h"

static char *utf8(PCWSTR text)
{
    int length = WideCharToMultiByte(CP_UTF8, 0, text ? text : L"", -1, NULL, 0, NULL, NULL);
    char *out = malloc((size_t)length);
    WideCharToMultiByte(CP_UTF8, 0, text ? text : L"", -1, out, length, NULL, NULL);
    return out;
}

/* task_string is a string that the caller frees with CoTaskMemFree. */
static PWSTR task_string(const char *text)
{
    int length = MultiByteToWideChar(CP_UTF8, 0, text, -1, NULL, 0);
    PWSTR out = CoTaskMemAlloc((size_t)length * sizeof(WCHAR));
    MultiByteToWideChar(CP_UTF8, 0, text, -1, out, length);
    return out;
}

static void guid_text(const GUID *id, char out[40])
{
    snprintf(out, 40, "%08lx-%04x-%04x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             (unsigned long)id->Data1, id->Data2, id->Data3, id->Data4[0], id->Data4[1], id->Data4[2],
             id->Data4[3], id->Data4[4], id->Data4[5], id->Data4[6], id->Data4[7]);
}

static HANDLE handle_of(const char *id)
{
    char *handle = malloc(strlen(id) + 1);
    strcpy(handle, id);
    return (HANDLE)handle;
}

/* forward makes a call. The answer goes to out, an id as a handle to made, an
 * error record to record: after success that must stay NULL. */
static HRESULT forward(const char *function, const char *id, PCWSTR payload, PWSTR *out, HANDLE *made, PWSTR *record)
{
    char *sent = utf8(payload), *answer;
    unsigned long code = simulate(function, id, sent, &answer);
    if (record != NULL)
        *record = code != 0 ? task_string(answer) : NULL;
    if (code == 0 && out != NULL)
        *out = task_string(answer);
    if (code == 0 && made != NULL)
        *made = handle_of(answer);
    free(sent);
    free(answer);
    return (HRESULT)code;
}

static HRESULT open_object(const char *function, const GUID *id, HANDLE *handle, PWSTR *record)
{
    char text[40];
    HRESULT code;
    guid_text(id, text);
    code = forward(function, text, NULL, NULL, NULL, record);
    if (code == 0)
        *handle = handle_of(text);
    return code;
}

static HRESULT delete_object(const char *function, const GUID *id, PWSTR *record)
{
    char text[40];
    guid_text(id, text);
    return forward(function, text, NULL, NULL, NULL, record);
}

#define EXPORT __declspec(dllexport) HRESULT WINAPI

#define SIMULATED(X)                                                                                        \
    EXPORT HcnEnumerate##X##s(PCWSTR query, PWSTR *out, PWSTR *record)                                      \
    {                                                                                                       \
        return forward("Enumerate" #X "s", "", query, out, NULL, record);                                   \
    }                                                                                                       \
    EXPORT HcnOpen##X(const GUID *id, HANDLE *handle, PWSTR *record)                                        \
    {                                                                                                       \
        return open_object("Open" #X, id, handle, record);                                                  \
    }                                                                                                       \
    EXPORT HcnModify##X(HANDLE object, PCWSTR settings, PWSTR *record)                                      \
    {                                                                                                       \
        return forward("Modify" #X, (const char *)object, settings, NULL, NULL, record);                    \
    }                                                                                                       \
    EXPORT HcnQuery##X##Properties(HANDLE object, PCWSTR query, PWSTR *out, PWSTR *record)                  \
    {                                                                                                       \
        return forward("Query" #X "Properties", (const char *)object, query, out, NULL, record);            \
    }                                                                                                       \
    EXPORT HcnDelete##X(const GUID *id, PWSTR *record)                                                      \
    {                                                                                                       \
        return delete_object("Delete" #X, id, record);                                                      \
    }                                                                                                       \
    EXPORT HcnClose##X(HANDLE object)                                                                       \
    {                                                                                                       \
        free(object);                                                                                       \
        return S_OK;                                                                                        \
    }

SIMULATED(Network)
SIMULATED(Endpoint)
SIMULATED(Namespace)

EXPORT HcnCreateNetwork(const GUID *id, PCWSTR settings, HANDLE *made, PWSTR *record)
{
    return forward("CreateNetwork", "", settings, NULL, made, record);
}

EXPORT HcnCreateEndpoint(HANDLE network, const GUID *id, PCWSTR settings, HANDLE *made, PWSTR *record)
{
    return forward("CreateEndpoint", (const char *)network, settings, NULL, made, record);
}

EXPORT HcnCreateNamespace(const GUID *id, PCWSTR settings, HANDLE *made, PWSTR *record)
{
    return forward("CreateNamespace", "", settings, NULL, made, record);
}

/* The package that calls us panics if an export is missing. */
#define ABSENT(X)                                                                                            \
    EXPORT HcnEnumerate##X##s(PCWSTR query, PWSTR *out, PWSTR *record) { return E_NOTIMPL; }                 \
    EXPORT HcnCreate##X(const GUID *id, PCWSTR settings, HANDLE *made, PWSTR *record) { return E_NOTIMPL; }  \
    EXPORT HcnOpen##X(const GUID *id, HANDLE *handle, PWSTR *record) { return E_NOTIMPL; }                   \
    EXPORT HcnModify##X(HANDLE object, PCWSTR settings, PWSTR *record) { return E_NOTIMPL; }                 \
    EXPORT HcnQuery##X##Properties(HANDLE object, PCWSTR query, PWSTR *out, PWSTR *record) { return E_NOTIMPL; } \
    EXPORT HcnDelete##X(const GUID *id, PWSTR *record) { return E_NOTIMPL; }                                 \
    EXPORT HcnClose##X(HANDLE object) { return E_NOTIMPL; }

ABSENT(LoadBalancer)
ABSENT(SdnRoute)
